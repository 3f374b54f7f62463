"""`Agent.from_a2a`: a server in front of the agent, which a client calls in this process."""

from __future__ import annotations

import asyncio
from functools import partial

from contract.followers.clients import StreamFollower
from contract.followers.follower import Kind, Outcome, Place

from dragoman import Agent, State


class FrontFollower(StreamFollower):
    """A front, which stores the task as its own. `behind` is the version that it speaks with the agent."""

    def __init__(self, place: Place, behind: str) -> None:
        super().__init__(place)
        self.behind = behind

    def target(self) -> object:
        """What the client calls."""
        return self.front

    async def open(self) -> None:
        url, reconnect = self.place.url, self.place.reconnect
        self.front = await asyncio.to_thread(lambda: Agent.from_a2a(url, protocol=self.behind, reconnect=reconnect))
        await super().open()

    async def follow(self, order: str) -> Outcome:
        outcome = await super().follow(order)
        if outcome.state is State.FAILED:
            assert self.stream is not None
            return outcome._replace(state=None, problem=self.stream.task.error or "")
        return outcome


def front(protocol: str) -> Kind:
    return Kind(
        name=f"front {protocol}",
        make=partial(FrontFollower, behind=protocol),
        problems={
            "unreachable": "the agent behind this one cannot be reached",
            "task lost": "the agent behind this one does not know the task any more",
            "refusal": "the agent behind this one does not accept the credentials of this server",
        },
        lacks={"leave": "its task goes on when a reader leaves: test_remote.py"},
    )


KINDS = [front("1.0"), front("0.3")]
