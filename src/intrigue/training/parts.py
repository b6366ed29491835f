"""Everything that has state in a run, and how it is saved and put back; what loops add to it is theirs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from intrigue.agents.base import Agent
from intrigue.agents.random import RandomAgent
from intrigue.curiosity.curiosity import Curiosity
from intrigue.rng import Streams
from intrigue.state import State
from intrigue.training.memory_budget import Footprint
from intrigue.training.rollout_collector import Collector

if TYPE_CHECKING:
    from intrigue.training.replay_collector import ReplayCollector

CollectorT = TypeVar("CollectorT", bound="Collector | ReplayCollector")
AgentT = TypeVar("AgentT", bound=Agent)


@dataclass
class RunParts(Generic[CollectorT, AgentT]):
    """What every run has, wherever it learns from."""

    collector: CollectorT
    agent: AgentT
    warm_up_agent: RandomAgent
    curiosity: Curiosity
    streams: Streams
    footprint: Footprint

    def state_dict(self) -> State:
        """The whole training state."""
        return {
            "collector": self.collector.state_dict(),
            "agent": self.agent.train_state(),
            "curiosity": self.curiosity.state_dict(),
            "streams": self.streams.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` gave."""
        # Streams first: environments that had to begin anew draw new skills from them.
        self.streams.load_state_dict(state["streams"])
        self.collector.load_state_dict(state["collector"])
        self.agent.load_train_state(state["agent"])
        self.curiosity.load_state_dict(state["curiosity"])

    def close(self) -> None:
        """Let go of the environments."""
        self.collector.pool.close()


@dataclass
class Parts(RunParts[Collector, Agent]):
    """The parts of a run that learns from its rollouts."""
