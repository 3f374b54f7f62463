"""Takes the screenshots of the console in `docs/img`, from a real server in a real browser.

`make screenshots` runs it; names of views as arguments take only those. A view is a row of `VIEWS`: its name, and the
steps that lead to it. Each is taken in light and dark, on a desktop and on a phone.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from itertools import product
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from console.browser import DESKTOP, NO_BROWSER, PHONE, View, find_browser, launch, new_profile
from console.pictures import small_png
from console.serving import HERE, ServedConsole
from playwright.async_api import Browser, Error, Page, async_playwright, expect

from dragoman import Client

IMAGES = HERE.parents[1] / "docs" / "img"
MOST_BYTES = 2_000_000
SIZES: dict[str, View] = {"desktop": DESKTOP, "phone": PHONE}
COLORS = {"light": False, "dark": True}
# Whether the first chart of the server has enough points, and how many calls to make for them at most.
HAS_CURVE = "() => (document.querySelector('.chart path')?.getAttribute('d') ?? '').split('L').length > 5"
MOST_CALLS = 100_000


class Tasks(NamedTuple):
    """What has happened on the server before the first screenshot: the ids that steps need."""

    booked: str
    asking: str


Steps = Callable[[Page, Tasks], Awaitable[object]]


async def prepare(server: ServedConsole) -> Tasks:
    """Fill the server with tasks in every state, from several agents."""
    async with Client(f"{server.url}/agents/travel") as travel, Client(f"{server.url}/agents/weather") as weather:
        for city in ("Lisbon", "Porto", "Coimbra"):
            await weather.send(city)
            await travel.send(f"Three days in {city}")
        await travel.send(tool="cancel_booking", arguments={"number": "B-1204"})
        watching = await travel.send(tool="watch_prices", arguments={"city": "Faro"}, wait=False)
        await travel.cancel_task(watching)
        await travel.send(tool="watch_prices", arguments={"city": "Madrid"}, wait=False)
        asking = await travel.send(tool="book_hotel", arguments={"city": "Lisbon"})
        travelers = [{"name": "Ada", "age": 36}, {"name": "Grace", "seat": "aisle"}]
        arguments = {"city": "Lisbon", "days": 3, "style": "relaxed", "travelers": travelers}
        await travel.send(tool="plan_trip", arguments=arguments)
        booked = await travel.send(tool="book_hotel", arguments={"city": "Porto"})
        for seconds, answer in ((3.0, "4"), (1.5, "breakfast")):
            await asyncio.sleep(seconds)  # somebody thinks about it: gaps of a timeline are to be seen
            await travel.send(answer, task=booked)
    return Tasks(booked.id, asking.id)


# -- the views: what is done before each picture is taken --------------------------------------------------------------


async def go(page: Page, place: str) -> None:
    """Go to a place of the console by its address, and wait until it is there."""
    await page.evaluate("(place) => { location.hash = place }", place)
    await expect(page.get_by_role("main")).not_to_be_empty()
    await expect(page.get_by_role("main").get_by_role("progressbar", name="Loading")).to_have_count(0)


async def agent(page: Page, tasks: Tasks) -> None:
    await go(page, "#/agents/travel")
    await expect(page.get_by_role("main").get_by_text("Plans trips").first).to_be_visible()


async def skill(page: Page, tasks: Tasks) -> None:
    await go(page, "#/agents/travel/skills/plan_trip")
    form = page.get_by_role("main")
    await form.get_by_label("city").first.fill("Lisbon")
    await form.get_by_label("days").first.fill("3")


async def chat(page: Page, tasks: Tasks) -> None:
    await go(page, "#/agents/travel/chat")
    await say(page, "Three days in Lisbon, please")
    await expect(page.get_by_role("main").get_by_text("Time Out Market").first).to_be_visible()


async def question(page: Page, tasks: Tasks) -> None:
    await go(page, f"#/tasks/{tasks.asking}")
    await expect(page.get_by_role("main").get_by_text("For how many nights?").first).to_be_visible()


async def wire(page: Page, tasks: Tasks) -> None:
    await chat(page, tasks)
    await go(page, "#/wire")
    await page.get_by_role("main").get_by_text("SendStreamingMessage").first.click()


async def task_list(page: Page, tasks: Tasks) -> None:
    await go(page, "#/tasks")
    await expect(page.get_by_role("main").get_by_text("Three days in Coimbra").first).to_be_visible()


async def task(page: Page, tasks: Tasks) -> None:
    await go(page, f"#/tasks/{tasks.booked}")
    await expect(page.get_by_role("slider").first).to_be_visible()


async def server_view(page: Page, tasks: Tasks) -> None:
    await go(page, "#/server")
    await expect(page.get_by_role("main").get_by_text("Nodes").first).to_be_visible()
    # It measures from the first look on: callers are there until a few minutes could be seen.
    async with Client(f"{page.url.partition('#')[0]}agents/weather") as weather:
        for number in range(MOST_CALLS):
            cities = ("Lisbon", "Porto", "Coimbra", "Faro")[: 1 + number // 7 % 4]
            await asyncio.gather(*(weather.send(city) for city in cities))
            if number % 20 == 0 and await page.evaluate(HAS_CURVE):
                return


async def say(page: Page, text: str) -> None:
    """Send a message in the chat, and wait for the end of the answer."""
    field = page.get_by_role("main").get_by_role("textbox", name="Message")
    await field.fill(text)
    await field.press("Enter")


VIEWS: dict[str, Steps] = {
    "agent": agent,
    "skill": skill,
    "chat": chat,
    "question": question,
    "wire": wire,
    "tasks": task_list,
    "task": task,
    "server": server_view,
}


# -- taking them -------------------------------------------------------------------------------------------------------


async def take(browser: Browser, server: ServedConsole, tasks: Tasks, name: str, size: str, color: str) -> bytes:
    """Lead a fresh page to a view, and return its picture."""
    context = await new_profile(browser, view=SIZES[size], dark=COLORS[color])
    try:
        page = await context.new_page()
        await page.goto(server.console)
        await expect(page.get_by_role("main")).to_be_visible()
        await VIEWS[name](page, tasks)
        # Neither the cursor nor the ring of the focus belongs to a picture.
        await page.evaluate("() => document.activeElement?.blur()")
        await page.mouse.move(0, 0)
        picture = await page.screenshot(animations="disabled", caret="hide")
        return await small_png(page, picture)
    finally:
        await context.close()


async def take_all(browser: Browser, server: ServedConsole, tasks: Tasks, name: str) -> bool:
    """Take a view in every size and color. Returns whether all could be taken."""
    for size, color in product(SIZES, COLORS):
        file = IMAGES / f"console-{name}-{size}-{color}.png"
        try:
            file.write_bytes(await take(browser, server, tasks, name, size, color))
        except (AssertionError, Error) as error:
            print(f"{file.name}: {type(error).__name__}: {str(error)[:1500]}", file=sys.stderr)
            return False  # the other views are taken all the same
        print(f"{file.name}: {file.stat().st_size:,} bytes")
    return True


async def main(names: list[str]) -> int:
    """Take the screenshots of these views, or of all. Returns the exit code."""
    program = find_browser()
    if program is None:
        print(NO_BROWSER, file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        server = ServedConsole(Path(folder), f"{HERE / 'showcase.py'}:server")
        try:
            tasks = await prepare(server)
            async with async_playwright() as playwright:
                browser = await launch(playwright, program)
                failed = [name for name in names or VIEWS if not await take_all(browser, server, tasks, name)]
                await browser.close()
        finally:
            server.stop()
    whole = sum(file.stat().st_size for file in IMAGES.glob("console-*.png"))
    print(f"{whole:,} bytes in all")
    return int(bool(failed) or whole > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
