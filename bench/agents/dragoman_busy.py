"""An agent that computes: what several workers are for."""

from __future__ import annotations

import time

from bench.agents.words import CARD_NAME
from dragoman import Agent

# Of CPU time, for each message.
BUSY_SECONDS = 0.005

agent = Agent(CARD_NAME, description="Computes, then echoes")


@agent.skill(default=True)
async def echo(text: str) -> str:
    """Compute, and say it again."""
    until = time.thread_time() + BUSY_SECONDS
    while time.thread_time() < until:
        pass
    return text
