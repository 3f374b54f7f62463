"""A stream of 20,000 chunks: the page stays usable, takes bounded memory, and shows all of it."""

from __future__ import annotations

from typing import Any

import pytest
from console.agents import CHUNKS
from console.driving import long_tasks
from console.serving import ServedConsole
from console.talking import open_chat, say, see_state, turn
from console.tracing import cpu_tasks
from playwright.async_api import Page, expect

pytestmark = [pytest.mark.console, pytest.mark.timeout(240)]

LONGEST_MS = 100
MEGABYTE = 1_000_000


async def heap(page: Page) -> float:
    """How many megabytes the page's objects take, without those that nothing holds any more."""
    session: Any = await page.context.new_cdp_session(page)
    await session.send("HeapProfiler.collectGarbage")
    used: float = (await session.send("Runtime.getHeapUsage"))["usedSize"]
    await session.detach()
    return used / MEGABYTE


async def until(page: Page, condition: str) -> None:
    """Wait for a condition of few elements. Playwright's `expect` reads the whole page, which keeps it busy itself."""
    await page.wait_for_function(f"() => {{ {_NAMES} return {condition} }}", timeout=120_000)


_NAMES = """
  const log = document.querySelector(".log");
  const isSeen = (node) => {
    const [inner, outer] = [node?.getBoundingClientRect(), log.getBoundingClientRect()];
    return inner && inner.top >= outer.top && inner.bottom <= outer.bottom;
  };
  const last = () => [...[...log.querySelectorAll(".blocks")].at(-1).querySelectorAll("li")].at(-1);
"""


async def test_a_stream_of_20000_chunks_keeps_the_page_responsive(
    visit: Any, studio: ServedConsole, record_property: Any
):
    page = await open_chat(visit, studio, skill="stream")
    await heap(page)
    await long_tasks(page, since_now=True)
    async with cpu_tasks(page) as tasks:
        await say(page, "go")
        await until(page, "log.querySelectorAll('li').length > 100")
        # Somebody writes on meanwhile, and looks at earlier messages.
        await page.keyboard.type("words")
        await until(page, "document.querySelector('#composer').value === 'words'")
        assert await page.evaluate("() => document.querySelector('.log').ariaBusy") == "true"
        await page.evaluate("() => document.querySelector('.log').focus()")
        await page.keyboard.press("Home")
        await until(page, "isSeen(log.querySelector('.message.user'))")
        await page.evaluate("() => document.querySelector('button.to-end').click()")
        await until(page, "log.querySelector('footer .badge').textContent === 'completed'")
        await until(page, f"last()?.textContent.startsWith('chunk {CHUNKS - 1} ') && isSeen(last())")
    wall = sorted(await long_tasks(page), reverse=True)
    used = await heap(page)
    record_property("cpu", [round(each) for each in tasks[:5]])
    record_property("wall", [round(each) for each in wall[:5]])
    record_property("megabytes", round(used))
    print(f"cpu {tasks[:5]} wall {len(wall)} {wall[:5]} heap {used:.0f} MB")
    assert tasks[0] < LONGEST_MS, tasks[:10]
    assert used < 60


async def test_streams_one_after_the_other_do_not_fill_the_memory(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio, skill="stream")
    used: list[float] = []
    for number in range(3):
        await page.evaluate("() => { location.hash = '#/agents/studio/chat?skill=stream' }")
        await expect(page.get_by_role("article", name="Turn")).to_have_count(0)
        await say(page, f"stream {number}")
        await expect(turn(page).locator("footer").get_by_text("completed")).to_be_visible(timeout=120_000)
        used.append(await heap(page))
    print("heap", [round(each) for each in used])
    assert used[2] - used[1] < 20, used


async def test_a_long_answer_is_taken_up_again_without_keeping_the_page_busy(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio, skill="stream")
    await say(page, "go")
    await expect(turn(page).locator("footer").get_by_text("completed")).to_be_visible(timeout=120_000)
    address = page.url[page.url.index("#") :]
    page: Page = await visit(studio.address("#/nowhere"))
    async with cpu_tasks(page) as tasks:
        await page.evaluate("(address) => { location.hash = address }", address)
        answer = await see_state(page)
        await expect(answer.get_by_text("chunk 0 ")).to_have_count(1)
        await expect(answer.get_by_role("button", name="Show more")).to_be_visible()
        await answer.get_by_role("button", name="Show more").click()
    print("cpu", tasks[:5])
    assert tasks[0] < LONGEST_MS, tasks[:10]
