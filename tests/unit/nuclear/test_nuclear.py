"""nuclear_score, nuclear_norm, nuclear_ratio, nuclear_floor: values by hand, types, range of numbers, errors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from intrigue.errors import IntrigueError, NonFiniteError
from intrigue.nuclear import (
    MatrixError,
    MatrixTypeError,
    choose_method,
    nuclear_floor,
    nuclear_norm,
    nuclear_ratio,
    nuclear_score,
)

FUNCTIONS: list[Callable[..., Tensor]] = [nuclear_score, nuclear_norm, nuclear_ratio, nuclear_floor]
every_cpu_method = pytest.mark.parametrize("method", ["native", "gram", "svd"])
every_function = pytest.mark.parametrize("function", FUNCTIONS)

# Singular values 3 and 4 by construction: a diagonal matrix with a column of zeros.
THREE_FOUR = torch.tensor([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]])


@every_cpu_method
def test_values_by_hand(method: str) -> None:
    assert nuclear_norm(THREE_FOUR, method=method).item() == pytest.approx(7.0, rel=1e-6)
    assert nuclear_ratio(THREE_FOUR, method=method).item() == pytest.approx(7 / 5, rel=1e-6)
    assert nuclear_score(THREE_FOUR, method=method).item() == pytest.approx(7 / (5 * math.sqrt(3)), rel=1e-6)
    assert nuclear_floor(THREE_FOUR, method=method).item() == pytest.approx(0.4 / (math.sqrt(2) - 1), rel=1e-6)


@every_cpu_method
def test_centered_norm_by_hand(method: str) -> None:
    # Rows (1, 2) and (3, 2) deviate from their mean by (-1, 0) and (1, 0): one singular value, √2.
    z = torch.tensor([[1.0, 2.0], [3.0, 2.0]])
    assert nuclear_norm(z, center=True, method=method).item() == pytest.approx(math.sqrt(2), rel=1e-6)


@every_cpu_method
@pytest.mark.parametrize(("n", "m"), [(5, 512), (12, 24), (24, 5), (7, 7)])
def test_equal_rows_score_the_lower_bound(n: int, m: int, method: str) -> None:
    z = torch.randn(1, m, generator=torch.Generator().manual_seed(0)).expand(n, m)
    assert nuclear_score(z, method=method).item() == pytest.approx(1 / math.sqrt(max(n, m)), rel=1e-6)
    assert nuclear_floor(z, method=method).item() == pytest.approx(0.0, abs=1e-7)
    assert nuclear_norm(z, center=True, method=method).item() == 0.0


@every_cpu_method
@pytest.mark.parametrize(("n", "m"), [(5, 512), (12, 24), (7, 7)])
def test_orthonormal_rows_score_the_upper_bound(n: int, m: int, method: str) -> None:
    z = torch.linalg.qr(torch.randn(m, n, generator=torch.Generator().manual_seed(0))).Q.mT
    assert nuclear_score(z, method=method).item() == pytest.approx(math.sqrt(n / m), rel=1e-6)
    assert nuclear_floor(z, method=method).item() == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("spread", "expected"), [(0.001, 1.0018), (0.01, 1.0178), (0.1, 1.174), (0.3, 1.474), (1.0, 2.039)]
)
def test_ratio_follows_the_closed_form_for_a_shared_mean(spread: float, expected: float) -> None:
    rng = torch.Generator().manual_seed(0)
    mean = torch.randn(200, 1, 512, generator=rng)
    mean *= math.sqrt(512) / mean.norm(dim=-1, keepdim=True)  # c = 1
    z = mean + spread * torch.randn(200, 5, 512, generator=rng)
    assert nuclear_ratio(z).mean().item() == pytest.approx(expected, rel=0.01)


def test_centering_destroys_the_ratio() -> None:
    rng = torch.Generator().manual_seed(0)
    for spread in (0.001, 0.1, 10.0):
        z = 1 + spread * torch.randn(5, 512, generator=rng, dtype=torch.float64)
        assert nuclear_ratio(z - z.mean(0)).item() == pytest.approx(2.0, rel=0.01)


@every_function
@every_cpu_method
def test_zero_and_single_entry_matrices(function: Callable[..., Tensor], method: str) -> None:
    assert function(torch.zeros(2, 3, 4), method=method).tolist() == [0.0, 0.0]
    single = function(torch.full((1, 1), -2.0), method=method).item()
    assert single == {nuclear_score: 1.0, nuclear_norm: 2.0, nuclear_ratio: 1.0, nuclear_floor: 0.0}[function]


@every_function
@pytest.mark.parametrize("batch", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
@pytest.mark.parametrize(("n", "m"), [(1, 6), (6, 1), (3, 5), (5, 3)])
def test_any_batch_shape(function: Callable[..., Tensor], batch: tuple[int, ...], n: int, m: int) -> None:
    z = torch.randn(*batch, n, m, generator=torch.Generator().manual_seed(0))
    scores = function(z)
    assert scores.shape == batch
    one_by_one = [function(matrix).item() for matrix in z.reshape(-1, n, m)]
    assert scores.flatten().tolist() == pytest.approx(one_by_one, rel=1e-6)


@every_function
def test_a_batch_larger_than_one_part_keeps_its_order(function: Callable[..., Tensor]) -> None:
    z = torch.randn(9000, 4, 32, generator=torch.Generator().manual_seed(0))  # 1.15 million entries, two parts
    pick = torch.tensor([0, 4321, 8191, 8192, 8999])
    torch.testing.assert_close(function(z)[pick], function(z[pick]), rtol=1e-6, atol=0)


@every_function
@pytest.mark.parametrize(
    ("given", "returned"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_types(function: Callable[..., Tensor], given: torch.dtype, returned: torch.dtype) -> None:
    z = torch.randn(4, 5, 24, generator=torch.Generator().manual_seed(0)).to(given)
    scores = function(z)
    assert scores.dtype == returned
    torch.testing.assert_close(scores.double(), function(z.double()), rtol=1e-6, atol=0)


@every_function
def test_input_is_untouched_and_no_gradient_flows(function: Callable[..., Tensor]) -> None:
    z = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    before = z.detach().clone()
    assert not function(z).requires_grad
    assert torch.equal(z.detach(), before)


@every_function
def test_strided_views_and_autocast_change_nothing(function: Callable[..., Tensor]) -> None:
    z = torch.randn(8, 6, 5, generator=torch.Generator().manual_seed(0)).permute(1, 2, 0)[::2]
    expected = function(z.contiguous())
    assert torch.equal(function(z), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(function(z), expected)


@every_cpu_method
@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1.0, 1e30, 1e36])
def test_float32_scales(scale: float, method: str) -> None:
    z = THREE_FOUR * scale
    assert nuclear_score(z, method=method).item() == pytest.approx(7 / (5 * math.sqrt(3)), rel=1e-6, abs=0)
    assert nuclear_norm(z, method=method).item() == pytest.approx(7 * scale, rel=1e-6, abs=0)


@every_cpu_method
@pytest.mark.parametrize("scale", [1e-310, 1e-300, 1e-160, 1e160, 1e300, 2e307])
def test_float64_scales(scale: float, method: str) -> None:
    z = THREE_FOUR.double() * scale
    assert nuclear_score(z, method=method).item() == pytest.approx(7 / (5 * math.sqrt(3)), rel=1e-12, abs=0)
    assert nuclear_norm(z, method=method).item() == pytest.approx(7 * scale, rel=1e-12, abs=0)
    shifted = z + torch.tensor([0.0, 0.0, 4 * scale], dtype=torch.float64)
    centered = torch.linalg.svdvals(THREE_FOUR.double() - THREE_FOUR.double().mean(0)).sum().item() * scale
    assert nuclear_norm(shifted, center=True, method=method).item() == pytest.approx(centered, rel=1e-7, abs=0)


@every_cpu_method
def test_smallest_and_largest_numbers(method: str) -> None:
    tiny = torch.full((2, 2), 2.0**-149)
    assert nuclear_score(tiny, method=method).item() == pytest.approx(1 / math.sqrt(2), rel=1e-6, abs=0)
    assert nuclear_norm(tiny, method=method).item() == 2.0**-148
    smallest = torch.full((1, 1), 5e-324, dtype=torch.float64)
    assert nuclear_norm(smallest, method=method).item() == 5e-324
    largest = torch.finfo(torch.float64).max
    wide = torch.full((2, 2), largest, dtype=torch.float64)
    assert nuclear_norm(wide[:1, :1], method=method).item() == largest
    assert nuclear_score(wide, method=method).item() == pytest.approx(1 / math.sqrt(2), rel=1e-7, abs=0)
    assert nuclear_norm(wide, method=method).item() == math.inf  # twice the largest number is none


@every_cpu_method
def test_centering_keeps_deviations_far_below_the_mean(method: str) -> None:
    z = torch.tensor([[1.0, 1e-200], [1.0, 3e-200]], dtype=torch.float64)
    assert nuclear_norm(z, center=True, method=method).item() == pytest.approx(math.sqrt(2) * 1e-200, rel=1e-12, abs=0)
    third = torch.full((3, 4), 0.1, dtype=torch.float64)  # 0.1 + 0.1 + 0.1 is not 3 · 0.1
    assert nuclear_norm(third, center=True, method=method).item() == 0.0


@every_cpu_method
def test_hard_spectra_converge(method: str) -> None:
    graded = torch.diag(10.0 ** -torch.arange(0, 300, 10, dtype=torch.float64))
    hilbert = 1 / (torch.arange(30)[:, None] + torch.arange(30) + 1.0).double()
    nilpotent = torch.diag(torch.ones(29, dtype=torch.float64), 1)
    signs = torch.ones(30, 30, dtype=torch.float64).triu() - torch.ones(30, 30, dtype=torch.float64).tril(-1)
    z = torch.stack([graded, hilbert, nilpotent, signs, torch.ones_like(signs), torch.eye(30).double()])
    exact = torch.linalg.svdvals(z).sum(-1)
    for scale in (1.0, 1e150, 1e-150):
        torch.testing.assert_close(nuclear_norm(z * scale, method=method), exact * scale, rtol=1e-7, atol=0)


@every_function
@every_cpu_method
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nonfinite_matrices(function: Callable[..., Tensor], method: str, dtype: torch.dtype, bad: float) -> None:
    z = torch.randn(2, 3, 4, 6, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = function(z, method=method)
    z[0, 2, 1, 1] = z[1, 1, 0, 0] = bad
    with pytest.raises(NonFiniteError, match=r"2 of 6 matrices contain NaN or infinity, the first at index \(0, 2\)"):
        function(z, method=method)
    scores = function(z, method=method, on_nonfinite="propagate")
    broken = torch.tensor([[False, False, True], [False, True, False]])
    assert torch.equal(scores.isnan(), broken)
    assert torch.equal(scores[~broken], expected[~broken])


def test_nonfinite_centered_and_single_matrices() -> None:
    z = torch.ones(3, 4)
    z[1, 1] = math.inf
    with pytest.raises(NonFiniteError, match=r"nuclear_norm: 1 of 1 matrices .* the only one given"):
        nuclear_norm(z, center=True)
    assert nuclear_norm(z, center=True, on_nonfinite="propagate").isnan().item()


@every_function
def test_wrong_shapes_and_types(function: Callable[..., Tensor]) -> None:
    for shape in ((), (5,)):
        with pytest.raises(MatrixError, match=r"Accepted: .*n, m"):
            function(torch.ones(shape))
    for shape in ((0, 4), (4, 0), (2, 0, 3)):
        with pytest.raises(MatrixError, match="no entries"):
            function(torch.ones(shape))
    for dtype in (torch.int64, torch.uint8, torch.bool, torch.complex64):
        with pytest.raises(MatrixTypeError, match="dtype"):
            function(torch.ones(2, 3).to(dtype))
    with pytest.raises(MatrixTypeError, match=r"torch\.as_tensor"):
        function([[1.0, 2.0]])


def test_errors_are_ours_and_pythons() -> None:
    assert issubclass(MatrixError, IntrigueError)
    assert issubclass(MatrixError, ValueError)
    assert issubclass(MatrixTypeError, TypeError)


@every_function
def test_unknown_options(function: Callable[..., Tensor]) -> None:
    with pytest.raises(MatrixError, match="Did you mean 'gram'"):
        function(torch.ones(2, 3), method="gramm")
    with pytest.raises(MatrixError, match="on_nonfinite"):
        function(torch.ones(2, 3), on_nonfinite="ignore")


def test_dispatch() -> None:
    cpu = torch.device("cpu")
    assert choose_method(cpu, torch.float32, 5, 512) == "native"
    assert choose_method(cpu, torch.float32, 4096, 12) == "native"
    assert choose_method(cpu, torch.float32, 33, 512) == "gram"
    assert choose_method(cpu, torch.float32, 400, 512) == "svd"
    wide = torch.randn(150, 1, generator=torch.Generator().manual_seed(0)) @ torch.ones(1, 150)
    assert nuclear_ratio(wide.double()).item() == pytest.approx(1.0, rel=1e-14)  # only the SVD is this exact


def test_no_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for z in (torch.zeros(2, 3), torch.ones(2, 3), torch.full((2, 3), math.nan), torch.ones(0, 2, 3)):
            for function in FUNCTIONS:
                function(z, on_nonfinite="propagate")
