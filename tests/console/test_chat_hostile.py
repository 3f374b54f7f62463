"""What a hostile agent says and sends in a chat is data: it is read, and nothing of it runs, loads or breaks out.

`test_hostile.py` has the same for the other views; what a page must not do fails each of these tests at its end.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from console.browser import DESKTOP, PHONE, View
from console.driving import sideways
from console.hostile import DATA, FILES, LARGE, NAMES, TEXTS
from console.serving import ServedConsole
from console.talking import choose, field, open_chat, say, turn
from console.tracing import cpu_tasks
from playwright.async_api import Page, expect

VIEWS = [pytest.param(DESKTOP, id="desktop"), pytest.param(PHONE, id="phone")]
# What an agent could want to have in the page. Pictures are ours: of bytes that are pictures, under an address we made.
FORBIDDEN = (
    ".log :is(script, iframe, object, embed, svg, style, link, meta, base, form:not(.answer), video, audio, math)"
)


async def check(page: Page) -> None:
    """Nothing sticks out, covers the page or is there that an agent chose; links lead to where links may lead."""
    assert await sideways(page) == []
    assert await page.locator(FORBIDDEN).count() == 0
    assert await page.evaluate("() => ({}).polluted") is None
    assert await page.evaluate(
        """() => [...document.querySelectorAll(".log a, .log img")]
          .map((node) => node.getAttribute(node.matches("a") ? "href" : "src"))
          .filter((address) => !/^(#|https?:|mailto:|blob:)/.test(address))"""
    ) == []  # fmt: skip
    # The log is clipped by itself: nothing of it lies over the field, or over the shell.
    assert await field(page).evaluate(
        """(node) => {
          const { x, y, width, height } = node.getBoundingClientRect();
          return node === document.elementFromPoint(x + width / 2, y + height / 2);
        }"""
    ), "something covers the field"


async def say_to_the_end(page: Page, text: str) -> None:
    """Send a message, and wait until the turn that it begins has ended."""
    turns = page.get_by_role("article", name="Turn")
    before = await turns.count()
    await say(page, text)
    await expect(turns).to_have_count(before + 1)
    await expect(turn(page).locator("footer")).to_contain_text(re.compile("completed|failed|rejected"), timeout=60_000)


async def test_hostile_words_of_an_agent_are_words(visit: Any, hostile: ServedConsole, subtests: pytest.Subtests):
    page = await open_chat(visit, hostile, "hostile")
    for key in ("script", "img-onerror", "link-javascript", "image-tracker", "css-injection", "right-to-left"):
        with subtests.test(key):
            await say_to_the_end(page, key)
            await check(page)
    await expect(page.get_by_text("<script>pwned(1)</script>", exact=True)).to_be_visible()


@pytest.mark.console
@pytest.mark.timeout(300)
@pytest.mark.parametrize("view", VIEWS)
async def test_texts_in_a_chat_are_data(visit: Any, hostile: ServedConsole, subtests: pytest.Subtests, view: View):
    page = await open_chat(visit, hostile, "hostile", view=view)
    for number, key in enumerate(TEXTS if view is DESKTOP else TEXTS.keys() - LARGE):
        if number % 12 == 0:
            await page.evaluate("() => { location.hash = '#/agents/hostile/chat' }")
            await expect(page.get_by_role("article", name="Turn")).to_have_count(0)
        with subtests.test(key):
            await say_to_the_end(page, key)
            await check(page)


@pytest.mark.console
@pytest.mark.timeout(300)
async def test_no_text_keeps_the_page_busy(visit: Any, hostile: ServedConsole, subtests: pytest.Subtests):
    for key in sorted(LARGE):
        with subtests.test(key):
            page = await open_chat(visit, hostile, "hostile")
            async with cpu_tasks(page) as tasks:
                await say_to_the_end(page, key)
            assert tasks[0] < 100, tasks[:5]
            await page.context.close()


@pytest.mark.console
@pytest.mark.timeout(300)
@pytest.mark.parametrize("view", VIEWS)
async def test_files_data_and_names_in_a_chat_are_data(
    visit: Any, hostile: ServedConsole, subtests: pytest.Subtests, view: View
):
    page = await open_chat(visit, hostile, "hostile", view=view)
    for skill, keys in (("file", FILES), ("data", DATA), ("artifact", NAMES)):
        await page.evaluate("() => { location.hash = '#/agents/hostile/chat' }")
        await expect(page.get_by_role("article", name="Turn")).to_have_count(0)
        await choose(page, skill)
        for key in keys:
            with subtests.test(key, skill=skill):
                await say_to_the_end(page, key)
                await check(page)


@pytest.mark.console
async def test_files_are_saved_under_harmless_names(visit: Any, hostile: ServedConsole, subtests: pytest.Subtests):
    page = await open_chat(visit, hostile, "hostile", skill="file")
    for key, name in {
        "name-traversal": "passwd",
        "name-windows": "con.txt_stream",
        "name-right-to-left": "invoice gnp.exe",
        "name-html": "_img src=x onerror=pwned(1)_.png",
        "name-empty": "file.txt",
    }.items():
        with subtests.test(key):
            await say_to_the_end(page, key)
            async with page.expect_download() as download:
                await turn(page).get_by_role("button", name="Download").click()
            assert (await download.value).suggested_filename == name


@pytest.mark.console
@pytest.mark.timeout(300)
async def test_questions_progress_and_failures_are_data(visit: Any, hostile: ServedConsole, subtests: pytest.Subtests):
    page = await open_chat(visit, hostile, "hostile")
    for skill, state in (
        ("ask", "input required"),
        ("fail", "failed"),
        ("progress", "working"),
        ("reply", "completed"),
    ):
        for key in sorted(TEXTS.keys() - LARGE)[::4]:
            with subtests.test(key, skill=skill):
                await page.goto(hostile.address(f"#/agents/hostile/chat?skill={skill}"))
                await page.reload()
                await say(page, key)
                await expect(turn(page).locator("footer")).to_contain_text(state)
                await check(page)
    for url in ("javascript:pwned(1)", "data:text/html,<script>pwned(1)</script>", "//evil.example/"):
        with subtests.test("sign_in", url=url):
            await page.goto(hostile.address("#/agents/hostile/chat?skill=sign_in"))
            await page.reload()
            await say(page, url)
            await expect(turn(page).locator("footer")).to_contain_text("sign-in required")
            await expect(turn(page).get_by_role("link", name="Open")).to_have_count(0)
            await check(page)
