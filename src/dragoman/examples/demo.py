"""The agent of `make run`: it talks, asks back, reports progress, returns a file, and has two typed skills.

Serve it with `dragoman serve dragoman.examples.demo`, and try in another terminal:

    dragoman send "hello"
    dragoman send "a trip to Lisbon"
    dragoman call convert amount=26.2 unit=miles
    dragoman call plan_trip city=Porto days=3
"""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Literal

from dragoman import Agent, Context, File

agent = Agent("demo", description="Plans trips and converts units. It works without a model or a key.")

TRIP = re.compile(r"\b(?:trip|travel|visit|weekend|holiday)\b.*?\b(?:to|in)\s+(?P<city>.+?)[\s.!?]*$", re.IGNORECASE)
HELLO = """\
Hello! You said: {text}

I am a small agent, and there is no model behind me. Ask me for

- **a trip**, as in `a trip to Lisbon`: I ask back, show my progress, and return a file
- **a conversion**, with typed arguments: `dragoman call convert amount=26.2 unit=miles`

My code is `dragoman/examples/demo.py`: copy what you like.
"""
PLACES = (
    ("the old town", "the castle", "the cathedral", "the market"),
    ("the art museum", "the botanical garden", "the harbor", "the university"),
    ("a fish restaurant", "a concert", "a roof terrace", "a small theater"),
)
PAUSE = 0.03  # seconds between two words, as a model would take


@agent.skill(default=True, examples=["hello", "a trip to Lisbon"])
async def chat(ctx: Context, text: str) -> AsyncIterator[str | File]:
    """Answer a message. Try "hello" or "a trip to Lisbon"."""
    trip = TRIP.search(text)
    if trip is None:
        async for word in in_words(HELLO.format(text=text)):
            yield word  # what is yielded reaches the caller at once
        return
    # The task is parked until somebody answers, also across a restart. An answer that is no number is asked for again.
    days = await ctx.ask("How many days?", type=int)
    async for output in plan_trip(ctx, trip["city"], days):
        yield output


@agent.skill
async def plan_trip(ctx: Context, city: str, days: int) -> AsyncIterator[str | File]:
    """Plan a trip. Returns the plan as text, then as a Markdown file.

    Args:
        city: where to go
        days: how many, from 1 to 14
    """
    days = max(1, min(days, 14))
    lines = [f"# {days} {'day' if days == 1 else 'days'} in {city}", ""]
    for day in range(1, days + 1):
        await ctx.progress(f"Planning day {day}", done=day, total=days)
        morning, afternoon, evening = (places[(day - 1) % len(places)] for places in PLACES)
        line = f"- **Day {day}**: {morning} in the morning, {afternoon} after lunch, {evening} at night"
        async for word in in_words(f"{line}\n"):
            yield word
        lines.append(line)
    name = re.sub(r"\W+", "-", city).strip("-").lower() or "trip"
    yield File("\n".join([*lines, ""]).encode(), name=f"{name}.md", media_type="text/markdown")


@agent.skill
def convert(amount: float, unit: Literal["km", "miles", "kg", "pounds", "celsius", "fahrenheit"]) -> str:
    """Convert between metric and US units.

    Args:
        amount: how much
        unit: the unit it is in
    """
    value, other = {
        "km": (amount / 1.609344, "miles"),
        "miles": (amount * 1.609344, "km"),
        "kg": (amount / 0.45359237, "pounds"),
        "pounds": (amount * 0.45359237, "kg"),
        "celsius": (amount * 9 / 5 + 32, "fahrenheit"),
        "fahrenheit": ((amount - 32) * 5 / 9, "celsius"),
    }[unit]
    return f"{amount:g} {unit} = {value:.4g} {other}"


async def in_words(text: str) -> AsyncIterator[str]:
    """Yield a text word by word."""
    for word in re.findall(r"\S+\s*", text):
        await asyncio.sleep(PAUSE)
        yield word


if __name__ == "__main__":
    agent.serve()
