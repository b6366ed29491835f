"""The suite notices what it must: each mistake below, made in a copy of the source, turns named tests red.

These are the mistakes found in other implementations of curiosity: a swapped axis, a frame across a reset, a bonus that
never reaches the learner, a score that changes what it measures, a seed that is only decoration.

The named tests are run as the default suite runs them, without what is marked slow or gpu.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from places import ROOT


class Mutant(NamedTuple):
    """One mistake: the file, the text it replaces, what stands there instead, and the tests that must fail."""

    file: str
    text: str
    wrong: str
    tests: str


MUTANTS = {
    "what a run multiplies in stays with the process": Mutant(
        "run/loop.py",
        '        stack.callback(set_matmul_dtype, "float32")',
        '        stack.callback(set_matmul_dtype, cfg.run.products)',
        "tests/faults/test_urlb_resume.py::test_products_of_bfloat16_are_taken_up_to_the_same_digest",
    ),
    "a resumed run multiplies in float32": Mutant(
        "run/loop.py",
        "        set_matmul_dtype(cfg.run.products)\n",
        '        set_matmul_dtype(cfg.run.products if runs[0].step == 0 else "float32")\n',
        "tests/faults/test_urlb_resume.py::test_products_of_bfloat16_are_taken_up_to_the_same_digest",
    ),
    "a trunk says that it needs half of its memory": Mutant(
        "ops/first_layer_kernels.py",
        "4 * (2 * CHUNK * (width_out + ROWS) + 1024)", "4 * (CHUNK * (width_out + ROWS) + 1024)",
        "tests/unit/ops/test_kernels_compile.py::test_all_kernels_compile",
    ),
    "a narrow layer's blocks do not fit registers": Mutant(
        "ops/output_layer_kernels.py", "TALL, COLUMNS = 32, 128", "TALL, COLUMNS = 64, 256",
        "tests/unit/ops/test_kernels_compile.py::test_hardly_anything_spills",
    ),
    "a kernel that no GPU takes": Mutant(
        "ops/topk_kernel.py", "    for place in range(k):\n", "    for place in list(range(k)):\n",
        "tests/unit/ops/test_kernels_compile.py::test_all_kernels_compile",
    ),
    "gae runs over environments": Mutant(
        "nn/returns.py",
        "    delta = reward + discount * next_value * ~terminated - value\n    goes_on = ~(terminated | truncated)\n",
        "    delta = (reward + discount * next_value * ~terminated - value).T\n"
        "    goes_on = (~(terminated | truncated)).T\n",
        "tests/unit/nn/test_returns.py",
    ),
    "the reward filter runs over environments": Mutant(
        "nn/normalize.py",
        "        sums = discounted_sums(reward, self.carry, self.discount)\n",
        "        sums = discounted_sums(reward.T, reward.new_zeros(reward.shape[0]), self.discount).T\n",
        "tests/unit/nn/test_normalize.py",
    ),
    "next_obs crosses a reset": Mutant(
        "training/rollout_buffer.py", "self._fetch(rows, step.next_obs)", "self._fetch(rows, step.obs)",
        "tests/unit/training/test_rollout_collector.py",
    ),
    "truncation is taken for termination": Mutant(
        "nn/returns.py",
        "discount * next_value * ~terminated - value",
        "discount * next_value * ~(terminated | truncated) - value",
        "tests/unit/nn/test_returns.py",
    ),
    "the bonus is added after the advantages": Mutant(
        "agents/ppo.py",
        "        advantage, target = self.advantages(batch, streams, extras)\n",
        "        late = [Stream(each.name, batch.reward, each.weight) for each in streams]\n"
        "        advantage, target = self.advantages(batch, late, extras)\n",
        "tests/contract/test_agent_contract.py",
    ),
    "the bonus never leaves curiosity": Mutant(
        "curiosity/curiosity.py",
        "Mixed(coefficient * bonus + cfg.ext_coef * extrinsic,",
        "Mixed(0 * bonus + cfg.ext_coef * extrinsic,",
        "tests/unit/curiosity/test_curiosity.py",
    ),
    "score changes what it measures": Mutant(
        "rewards/rnd.py",
        '        """Prediction error on s\', or on s divided by its running deviation (urlb), (T, N)."""\n',
        "        next(self.predictor.parameters()).data.mul_(1.001)\n",
        "tests/contract/test_reward_contract.py",
    ),
    "curiosity learns before it scores": Mutant(
        "curiosity/curiosity.py",
        "        raw, parts =",
        "        with torch.enable_grad():\n            self.trainer.fit(prepared)\n        raw, parts =",
        "tests/unit/curiosity/test_curiosity.py",
    ),
    "a stream ignores its seed": Mutant(
        "rng.py", "generator.manual_seed(derive_seed(seed, name))", "generator.manual_seed(derive_seed(0, name))",
        "tests/unit/test_rng.py",
    ),
    "environments ignore their seed": Mutant(
        "envs/pool/local.py", "seed = derive_seed(self._seed, *purpose, index)",
        "seed = derive_seed(0, *purpose, index)", "tests/contract/test_env_contract.py",
    ),
    "the optimiser is not saved": Mutant(
        "agents/ppo.py", '        load_optimizer_state(self._step.optimizer, state["optimizer"])\n', "",
        "tests/contract/test_agent_contract.py",
    ),
    "a replayed stack reaches into the episode before": Mutant(
        "replay/step_store.py", "= np.where(over | ~valid, 0, after - left)", "= after - left",
        "tests/unit/replay/test_buffer.py",
    ),
    "a replayed end is followed by the reset": Mutant(
        "replay/step_store.py",
        "successor = np.where(over, ended, after)", "successor = after", "tests/unit/replay/test_buffer.py",
    ),
    "a window that is cut off looks at nothing": Mutant(
        "agents/dqn.py", "~batch.terminated[last, columns]", "~batch.ended[last, columns]",
        "tests/golden/test_dqn_golden.py",
    ),
    "the online network values its own choice": Mutant(
        "agents/dqn.py", "value: Tensor = self.target(obs, skill)", "value: Tensor = self.online(obs, skill)",
        "tests/golden/test_dqn_golden.py",
    ),
    "what explores is never behind": Mutant(
        "training/stacked/trainer.py",
        "                self._mark_ready()\n            self._begin_update()\n",
        "                self._mark_ready()\n            self._begin_update()\n            self._explorers.follow()\n",
        "tests/unit/training/stacked/test_trainer.py::test_with_overlap_the_actor_of_one_update_ago_explores",
    ),
    "what explores is two updates behind": Mutant(
        "training/stacked/trainer.py", "self._actions(follow=held_back)", "self._actions(follow=False)",
        "tests/unit/training/stacked/test_trainer.py::test_each_seed_is_what_it_is_alone",
    ),
    "seeds draw from the first one's stream": Mutant(
        "rng.py",
        "(shape, each, dtype) for each in", "(shape, rngs[0], dtype) for _ in",
        "tests/unit/training/stacked/test_random.py",
    ),
    "seeds roll the first one's dice": Mutant(
        "rng.py",
        "(shape, each, dtype) for each in", "(shape, rngs[0], dtype) for _ in", "tests/unit/ops/test_philox.py",
    ),
    "a loss may draw otherwise than it was told to": Mutant(
        "training/stacked/random.py",
        "if self.draws[place] != asked:", "if False:", "tests/unit/training/stacked/test_random.py",
    ),
    "members that share rows are scored in each other's place": Mutant(
        "ops/matmul.py", "return scores.movedim(-2, 0)", "return scores.movedim(-2, 0).flip(0)",
        "tests/unit/ops/test_ensemble_linear.py",
    ),
    "a part of a product has the wrong sign": Mutant(
        "ops/matmul.py",
        "pairwise_scores(-rows / 2, weight_rows, offset)", "pairwise_scores(rows / 2, weight_rows, offset)",
        "tests/unit/ops/test_ensemble_linear.py",
    ),
    "dice are put down where they were taken up": Mutant(
        "ops/philox_kernel.py", "offset + 4)", "offset)", "tests/unit/ops/test_philox.py",
    ),
    "of what rounding leaves, nothing is multiplied": Mutant(
        "ops/tf32x3_kernel.py", "place + D + lane, low, mask", "place + D + lane, 0.0 * low, mask",
        "tests/unit/ops/test_tf32x3.py",
    ),
    "a narrow layer learns where ReLU is flat": Mutant(
        "ops/output_layer_kernels.py",
        "moved = tl.where(z <= 0.0, 0.0, dh)", "moved = dh", "tests/unit/ops/test_output_layer.py",
    ),
    "a wide layer's bias learns nothing before a narrow one": Mutant(
        "ops/output_layer_kernels.py", "tl.where((line == A)[:, None]", "tl.where((line == 0)[:, None]",
        "tests/unit/ops/test_output_layer.py",
    ),
    "a wide layer's bias is left out before a narrow one": Mutant(
        "ops/output_layer.py",
        "OUTPUT_LAYER(product, hidden.bias, output", "OUTPUT_LAYER(product, 0 * hidden.bias, output",
        "tests/unit/ops/test_output_layer.py",
    ),
    "a step that is not finite is taken": Mutant(
        "ops/optimizer_step.py", "        skip.copy_(bad.any())\n", "",
        "tests/unit/training/stacked/test_trainer.py::test_a_loss_that_is_not_finite_changes_no_weight_and_stops_the_run",
    ),
    "the target stays where it was": Mutant(
        "training/stacked/update.py", "torch._foreach_lerp_(self._slow, self._fast, self._rate)", "pass",
        "tests/unit/training/stacked/test_trainer.py::test_each_seed_is_what_it_is_alone",
    ),
    "a kernel does not count its steps": Mutant(
        "ops/adam_kernels.py", "other=0.0) + 1.0, mask=counts)", "other=0.0), mask=counts)",
        "tests/unit/ops/test_adam.py",
    ),
    "a kernel takes another weight's correction": Mutant(
        "ops/adam_kernels.py", "2 * select(PLACES, place)", "2 * place", "tests/unit/ops/test_adam.py",
    ),
    "TensorBoard hides the row a run goes on from": Mutant(
        "run/logging/trackers.py", "purged = step + 1 if", "purged = step if",
        "tests/unit/run/logging/test_loggers.py::test_what_a_resumed_run_went_back_from_is_hidden",
    ),
    "evaluations are not copied": Mutant(
        "run/logging/journal.py",
        "        self._loggers.write(step, step * self.frames_per_step, wall_seconds, metrics)\n", "",
        "tests/unit/run/logging/test_loggers.py::test_a_fine_tuning_takes_the_sinks_that_are_here",
    ),
    "a run fails with its copy": Mutant(
        "run/logging/loggers.py", "        except Exception as error:", "        except KeyError as error:",
        "tests/unit/run/logging/test_loggers.py::test_a_copy_that_fails_on_the_way_is_put_away",
    ),
}  # fmt: skip


DEFAULT = "not slow and not gpu and not trackers"  # as `make test`


def has_mark(node: ast.AST) -> bool:
    """Whether an expression names a mark that keeps tests out of the default suite."""
    return any(isinstance(each, ast.Attribute) and each.attr in ("slow", "gpu", "trackers") for each in ast.walk(node))


def default_tests(file: Path) -> set[str]:
    """The tests of a file that the default suite runs, with some of their parameters at least."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    marks = [
        node.value for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    if any(map(has_mark, marks)):
        return set()
    tests = [node for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return {
        test.name
        for test in tests
        if not any(has_mark(each) for each in test.decorator_list if "parametrize" not in ast.unparse(each))
    }


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_fits_the_source_and_names_tests_of_the_default_suite(name):
    mutant = MUTANTS[name]
    text = (ROOT / "src" / "intrigue" / mutant.file).read_text(encoding="utf-8")
    assert text.count(mutant.text) == 1, f"{mutant.file} must hold the mutant's text once"
    file, _, test = mutant.tests.partition("::")
    assert (ROOT / file).exists(), f"there is no {file}"
    found = default_tests(ROOT / file)
    assert test in found if test else found, f"{mutant.tests} is not in the default suite"


def run_tests(source: Path, tests: str) -> subprocess.CompletedProcess[str]:
    # Not as one of the test processes around this one: what those have computed is of the source as it is.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**own, "PYTHONPATH": f"{source}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", "-m", DEFAULT, tests]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_turns_tests_red(name, tmp_path):
    mutant = MUTANTS[name]
    shutil.copytree(ROOT / "src", tmp_path / "src")
    path = tmp_path / "src" / "intrigue" / mutant.file
    text = path.read_text()
    assert text.count(mutant.text) == 1, "the mutant no longer fits the source"
    path.write_text(text.replace(mutant.text, mutant.wrong))
    done = run_tests(tmp_path / "src", mutant.tests)
    assert done.returncode == 1, done.stdout
    assert " failed" in done.stdout
    path.write_text(text)
    assert run_tests(tmp_path / "src", mutant.tests).returncode == 0, "restored, they must be green again"
