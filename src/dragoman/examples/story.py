"""An agent that survives a crash of its server: its skill runs again, and finished steps are not repeated."""

import asyncio

from dragoman import Agent, Context

STORY = (
    "An agent began to tell a story . Its server was killed in the middle of a word . "
    "It went on as if nothing had happened ."
)

agent = Agent("story", description="Tells a story that no crash can stop")


async def think(word: str) -> str:
    """Stand in for something slow and expensive, such as a model call."""
    await asyncio.sleep(0.25)
    return word


@agent.skill(restart=True)
async def tell(ctx: Context, topic: str):
    """Tell a story, a word at a time."""
    for number, word in enumerate(STORY.split()):
        # A crash in the middle of a thought: with `retry` it is thought again. Without, the task would fail, because
        # nobody could know whether the thought had its effect.
        yield await ctx.once(f"word {number}", think, word, retry=True) + " "
