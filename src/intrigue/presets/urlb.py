"""URLB pre-training, one bonus per preset: one setting (`urlb_setting`) and each bonus's own numbers.

`intrigue finetune` takes such a run on to a task.
"""

from __future__ import annotations

from intrigue.presets.registry import register_preset
from intrigue.presets.urlb_setting import Layer, pretraining, scratch, shrink_for_laptop


@register_preset("nnm-urlb")
def nnm_urlb() -> Layer:
    """URLB: the paper's ratio over a state and its eleven nearest in the batch."""
    return {
        **pretraining(),
        "reward": "nnm",
        "reward.source": "knn",  # open in the paper: it says that NNM converges as APT does, which is a kNN bonus
        "reward.form": "ratio",  # the paper's eq. of the bonus, λ = 1/√max(m, n)
        "reward.n": 12,  # open in the paper: URLB icm_apt knn_k, which counts the state itself
        "reward.neighbours_of": "obs",  # open in the paper: URLB icm_apt looks at the state left
        "reward.memory": 0,  # URLB: neighbours are those of the batch
        "reward.encoder": "trunk",  # open in the paper: URLB icm_apt
        "reward.features": "raw",  # the trunk's LayerNorm and tanh bound an encoding's length; APT measures the same
        "reward.feature_dim": 512,  # URLB icm_rep_dim
        "reward.hidden": 1024,  # URLB hidden_dim, of the forward and inverse model
    }


@register_preset("nnmc-urlb")
def nnmc_urlb() -> Layer:
    """URLB: the nuclear norm of the offsets to those neighbours; ours, not the paper's formula."""
    return {**nnm_urlb(), "reward": "nnmc", "reward.form": "centered"}  # ours


@register_preset("nnm-ensemble-urlb")
def nnm_ensemble_urlb() -> Layer:
    """URLB: the paper's ratio over five models' predictions of the next encoding."""
    return {
        **nnm_urlb(),
        "reward.source": "ensemble",  # the paper's first way, as on Atari
        "reward.n": 5,  # URLB disagreement n_models
        "reward.blocks": 0,  # URLB disagreement: models of two layers
        "reward.keep": 0.8,  # as on Atari: without it five models differ by their first weights alone
    }


@register_preset("nnm-state-urlb")
def nnm_state_urlb() -> Layer:
    """URLB: the paper's ratio over raw states and their neighbours, without an encoder."""
    return {**nnm_urlb(), "reward.encoder": "identity", "reward.features": "layernorm"}  # ours: equal lengths


@register_preset("apt-urlb")
def apt_urlb() -> Layer:
    """URLB: active pre-training, the distance to the neighbours that NNM looks at."""
    return {
        **pretraining(),
        "reward": "apt",
        "reward.variant": "urlb",  # URLB icm_apt at HEAD: the state left, no normaliser
        "reward.k": 12,  # URLB icm_apt knn_k, the state itself among them
        "reward.feature_dim": 512,  # URLB icm_rep_dim
        "reward.hidden": 1024,  # URLB hidden_dim
    }


@register_preset("icm-urlb")
def icm_urlb() -> Layer:
    """URLB: the intrinsic curiosity module, one model's error on the state itself."""
    return {**pretraining(), "reward": "icm", "reward.variant": "urlb", "reward.hidden": 1024}  # URLB icm.py, icm.yaml


@register_preset("rnd-urlb")
def rnd_urlb() -> Layer:
    """URLB: random network distillation of whitened states."""
    return {
        **pretraining(),
        "reward": "rnd",
        "reward.variant": "urlb",  # URLB rnd.py: BatchNorm, clip ±5, divided by the running deviation
        "reward.feature_dim": 512,  # URLB rnd_rep_dim
        "reward.hidden": 1024,  # URLB hidden_dim
    }


@register_preset("disagreement-urlb")
def disagreement_urlb() -> Layer:
    """URLB: the variance among five models' predictions of the state itself."""
    return {
        **pretraining(),
        "reward": "disagreement",
        "reward.variant": "urlb",  # URLB disagreement.py: unbiased variance, mean over numbers
        "reward.members": 5,  # URLB disagreement.py n_models
        "reward.hidden": 1024,  # URLB hidden_dim
    }


@register_preset("proto-urlb")
def proto_urlb() -> Layer:
    """URLB: distance to a queue of states that prototypes chose."""
    return {
        **pretraining(),
        "reward": "proto",
        "reward.variant": "urlb",  # URLB proto.py since 2021-12-21; its published numbers are urlb-2021's
        "reward.feature_dim": 128,  # URLB pred_dim
        "reward.hidden": 512,  # URLB proj_dim
        "reward.prototypes": 512,  # URLB num_protos
        "reward.queue": 2048,  # URLB queue_size
        "reward.k": 3,  # URLB topk
        "reward.temperature": 0.1,  # URLB tau
        "reward.rounds": 3,  # URLB num_iters
        "reward.target_rate": 0.05,  # URLB encoder_target_tau
    }


@register_preset("aps-urlb")
def aps_urlb() -> Layer:
    """URLB: entropy of the states reached and how well they tell the task, with a critic of successor features."""
    return {
        **pretraining(),
        "agent.critic": "successor",  # URLB aps.py CriticSF
        "reward": "aps",
        "reward.variant": "urlb",  # URLB knn_rms true: divided by the running mean
        "reward.skill_dim": 10,  # URLB sf_dim
        "reward.every": 5,  # URLB update_task_every_step
        "reward.k": 12,  # URLB knn_k
        "reward.clip": 1e-4,  # URLB knn_clip
        "reward.hidden": 1024,  # URLB hidden_dim
    }


@register_preset("diayn-urlb")
def diayn_urlb() -> Layer:
    """URLB: sixteen skills that can be told from the states they lead to."""
    return {
        **pretraining(),
        "reward": "diayn",
        "reward.variant": "urlb",
        "reward.skills": 16,  # URLB skill_dim
        "reward.every": 50,  # URLB update_skill_every_step
        "reward.hidden": 1024,  # URLB hidden_dim
    }


@register_preset("smm-urlb")
def smm_urlb() -> Layer:
    """URLB: state marginal matching with four skills."""
    return {
        **pretraining(),
        "reward": "smm",
        "reward.variant": "urlb",  # URLB smm.py adds the discriminator's error
        "reward.skills": 4,  # URLB z_dim
        "reward.density_hidden": 150,  # URLB smm.py VAE
        "reward.code": 128,  # URLB smm.py VAE
        "reward.beta": 0.5,  # URLB vae_beta
        "reward.hidden": 1024,  # URLB hidden_dim
        # URLB sp_lr, of the discriminator; its autoencoder has vae_lr 1e-2, and here both share one rate.
        "curiosity.learning_rate": 1e-3,
    }


@register_preset("cic-urlb")
def cic_urlb() -> Layer:
    """URLB: contrastive intrinsic control, entropy of encodings that tell a skill of 64 numbers."""
    return {
        **pretraining(),
        "reward": "cic",
        "reward.variant": "official",  # CIC
        "reward.skill_dim": 64,  # CIC skill_dim
        "reward.every": 50,  # CIC update_skill_every_step
        "reward.temperature": 0.5,  # CIC temp
        "reward.k": 16,  # CIC knn_k
        "reward.clip": 5e-4,  # CIC knn_clip
        "reward.hidden": 1024,  # CIC hidden_dim
    }


@register_preset("scratch-urlb")
def scratch_urlb() -> Layer:
    """URLB: no pre-training and no bonus; DDPG learns a task's own reward, as fine-tuning does."""
    return scratch()


@register_preset("nnm-urlb-small")
def nnm_urlb_small() -> Layer:
    """nnm-urlb for two cores without a GPU."""
    return {**shrink_for_laptop(nnm_urlb()), "reward.feature_dim": 128, "reward.hidden": 256}  # ours
