"""The first example: it takes plain text, streams, and asks."""

import asyncio

from dragoman import Agent, Context

agent = Agent("trip", description="Plans trips")


@agent.skill(examples=["Lisbon"])
async def plan(ctx: Context, city: str):
    """Plan a trip to a city."""
    days = await ctx.ask("How many days?", type=int)  # parks the task: no memory, survives a restart
    for day in range(1, days + 1):
        await asyncio.sleep(0.3)  # a model would take its time, too
        yield f"Day {day}: walk around {city}. "  # streamed, stored, resumable


@agent.skill
def add_numbers(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@agent.skill
async def story(topic: str):
    """Tell a story, streamed word by word."""
    for word in f"Once upon a time there was {topic}, and it lived happily ever after.".split():
        await asyncio.sleep(0.1)
        yield word + " "
