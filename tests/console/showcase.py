"""The agents of the screenshots: what they say looks like what agents say.

dragoman serve tests/console/showcase.py:server
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))  # a served file has its own folder on the path, not that one

from console.samples import png

from dragoman import Agent, Context, Failed, File, Server

travel = Agent(
    "travel",
    description="Plans trips, books hotels and keeps an eye on the budget.",
    version="2.4.0",
    card={
        "provider": {"organization": "Blue Door Travel", "url": "https://bluedoor.example"},
        "documentationUrl": "https://bluedoor.example/agents/travel",
    },
)

PLAN = """\
## Three days in Lisbon

Here is a plan that leaves the afternoons free. All of it is **within walking distance**, but for the tram on day two.

| day | morning | evening | cost |
|:----|:--------|:--------|-----:|
| 1 | Alfama and the castle | Fado in *Mouraria* | 64 € |
| 2 | Tram 28, Estrela | Cook with a chef | 85 € |
| 3 | Belém, by the river | Time Out Market | 47 € |

1. Book the **tram** early: `line 28` fills up by nine.
2. Take water; the hills are steep.

> The castle is closed on Monday mornings.
"""


@dataclass
class Traveler:
    """Who travels."""

    name: str
    age: Annotated[int, msgspec.Meta(ge=0, le=120)] = 30
    seat: Literal["window", "aisle"] = "window"


@travel.skill(default=True, tags=["plan"], examples=["Three days in Lisbon", "A weekend in Porto"])
async def chat(ctx: Context, text: str) -> AsyncIterator[str | File]:
    """Answer a question about a trip, with a plan and a chart of its costs."""
    for number, step in enumerate(("hotels", "opening hours", "prices"), start=1):
        await ctx.progress(f"looking up {step}", done=number, total=3)
    for line in PLAN.splitlines(keepends=True):
        yield line
        await asyncio.sleep(0)
    yield File(png(480, 200), name="costs.png", media_type="image/png")


@travel.skill(tags=["plan", "form"], examples=["A trip for two to Porto"])
async def plan_trip(
    ctx: Context,
    city: Annotated[str, "where to go"],
    days: Annotated[int, msgspec.Meta(ge=1, le=14), "from 1 to 14"],
    style: Literal["relaxed", "balanced", "packed"] = "balanced",
    travelers: list[Traveler] | None = None,
    budget: Annotated[float, "in euros, for all"] = 800.0,
    with_hotel: bool = True,
) -> AsyncIterator[Any]:
    """Plan a trip to a city, day by day, and return the plan as a file."""
    for day in range(1, days + 1):
        await ctx.progress(f"Planning day {day}", done=day, total=days)
    await ctx.artifact({"city": city, "days": days, "style": style, "budget": budget}, name="figures")
    yield PLAN
    yield File(PLAN.encode(), name="plan.md", media_type="text/markdown")


@travel.skill(tags=["book"])
async def book_hotel(ctx: Context, city: str) -> AsyncIterator[str]:
    """Find a hotel and book it, once its details are agreed upon."""
    yield f"I found the **Hotel Miradouro** in {city}, 92 € a night.\n\n"
    nights = await ctx.ask("For how many nights?", type=int)
    board = await ctx.ask("Which meals?", choices=["none", "breakfast", "half board"])
    yield f"Booked: {nights} nights with {board}. The confirmation is on its way.\n"


@travel.skill(tags=["book"])
async def cancel_booking(number: str) -> str:
    """Cancel a booking."""
    raise Failed(f"There is no booking {number}.")


@travel.skill(tags=["watch"])
async def watch_prices(ctx: Context, city: str) -> AsyncIterator[str]:
    """Watch the prices of flights until they drop."""
    await ctx.progress(f"watching flights to {city}", done=3, total=10)
    yield f"Flights to {city} are at 128 € now.\n"
    await asyncio.Event().wait()


weather = Agent("weather", description="Forecasts for three days.", version="1.0.2")


@weather.skill(default=True, examples=["Lisbon"])
def forecast(text: str) -> list[dict[str, Any]]:
    """Forecast the weather of a city."""
    return [{"day": day, "sky": sky, "high": high} for day, sky, high in (("Mon", "sun", 24), ("Tue", "clouds", 21))]


ledger = Agent("ledger", description="Keeps the books of trips.", version="0.9.0")


@ledger.skill(default=True)
def total(text: str) -> str:
    """Add up the costs of a trip."""
    return f"{text}: 196 €"


server = Server(travel, weather, ledger)
