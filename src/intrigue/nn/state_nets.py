"""Networks over states as URLB builds them: the state itself, or convolved pixels, into ReLU layers of one width.

    s ∈ R^n ──► Linear, ReLU, Linear, ReLU, Linear          orthogonal weights of gain 1, zero biases (URLB utils.py)
    pixels  ──► Nature convolutions, dense, ReLU ──► the same

URLB trains the convolutions of its pixel agents with the critic; here they are the reward's and learn from its loss.
"""

from __future__ import annotations

from torch import Tensor, nn

from intrigue.nn.networks import ConvTrunk, init_orthogonal, mlp
from intrigue.ops.first_layer import Trunk
from intrigue.spaces import ObsSpec


class StateTrunk(nn.Module):
    """A state vector as it is, or pixels as `features` numbers; any leading axes."""

    def __init__(self, spec: ObsSpec, features: int) -> None:
        super().__init__()
        self.spec = spec
        pixels = spec.kind == "pixels"
        self.width = features if pixels else spec.size
        self.body = nn.Sequential(ConvTrunk(spec.shape, features, "nature"), nn.ReLU()) if pixels else nn.Identity()

    def forward(self, obs: Tensor) -> Tensor:
        """(..., *obs) float -> (..., width)."""
        lead = obs.shape[: obs.dim() - len(self.spec.shape)]
        out: Tensor = self.body(obs.reshape(-1, *self.spec.shape))
        return out.reshape(*lead, -1)


def icm_trunk(spec: ObsSpec, features: int) -> nn.Module:
    """URLB's `icm_apt` encoder: one layer, LayerNorm, tanh. Forward and inverse model train it (`plain_dynamics`)."""
    trunk = StateTrunk(spec, features)
    return nn.Sequential(trunk, init_orthogonal(Trunk(trunk.width, features), 1.0))


def relu_net(width_in: int, hidden: int, width_out: int) -> nn.Module:
    """Two hidden layers of one width: what every URLB reward reads states with."""
    return init_orthogonal(mlp((width_in, hidden, hidden, width_out), nn.ReLU), 1.0)
