"""The shell of the console: it opens with the token of this start, lists the agents, and is led by keys."""

from __future__ import annotations

import re
from typing import Any

import pytest
from console.browser import DESKTOP, PHONE
from console.driving import axe, focused, press, sidebar, sideways, tab_to
from console.serving import ServedConsole
from playwright.async_api import expect

ROUTES = ("#/agents/studio", "#/agents/studio/chat", "#/tasks", "#/wire", "#/server", "#/nowhere")


async def test_the_printed_address_opens_the_console_and_leaves_no_token_behind(visit: Any, studio: ServedConsole):
    page = await visit(studio.console)
    for name in ("studio", "library", "parrot"):
        await expect(sidebar(page).get_by_role("link", name=name, exact=True)).to_be_visible()
    await expect(sidebar(page).get_by_role("link", name="studio", exact=True)).to_have_attribute("aria-current", "page")
    assert "token" not in page.url
    assert await page.evaluate("() => document.cookie") == ""
    await page.reload()
    await expect(page.get_by_text("operator")).to_be_visible()


async def test_without_the_token_the_agents_are_seen_and_nothing_else(visit: Any, studio: ServedConsole):
    page = await visit(f"{studio.url}/")
    await expect(sidebar(page).get_by_role("link", name="studio", exact=True)).to_be_visible()
    await expect(page.get_by_text("visitor")).to_be_visible()
    for place in ("Tasks", "Server"):
        await sidebar(page).get_by_role("link", name=place, exact=True).click()
        await expect(page.get_by_role("main").get_by_text("dragoman serve")).to_be_visible()


async def test_keys_lead_everywhere(visit: Any, studio: ServedConsole):
    page = await visit(studio.console)
    await expect(sidebar(page)).to_be_visible()
    for key, place in {"t": "#/tasks", "w": "#/wire", "s": "#/server", "a": "#/agents/studio"}.items():
        await press(page, "g", key)
        await expect(page).to_have_url(re.compile(re.escape(place)))
    await press(page, "?")
    await expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    await press(page, "Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(page.get_by_role("searchbox", name="Filter skills")).to_be_visible()
    await press(page, "/")
    await expect(page.get_by_role("searchbox", name="Filter skills")).to_be_focused()
    await press(page, "Escape", "g", "s")
    await expect(page.get_by_role("searchbox", name="Filter skills")).to_have_count(0)
    await press(page, "/")
    await expect(page.get_by_role("searchbox", name="Search tasks")).to_be_focused()
    await press(page, *"Lisbon", "Enter")
    await expect(page).to_have_url(re.compile("#/tasks.text=Lisbon"))


async def test_the_first_tab_skips_to_the_content(visit: Any, studio: ServedConsole):
    page = await visit(studio.console)
    await expect(sidebar(page)).to_be_visible()
    await tab_to(page, page.get_by_role("link", name="Skip to content"), at_most=1)
    await press(page, "Enter")
    assert (await focused(page)).startswith("main")


async def test_a_phone_has_the_agents_behind_a_menu(visit: Any, studio: ServedConsole):
    page = await visit(studio.console, view=PHONE)
    await expect(sidebar(page).get_by_role("link", name="library", exact=True)).not_to_be_in_viewport()
    await page.get_by_role("button", name="Menu").click()
    await sidebar(page).get_by_role("link", name="library", exact=True).click()
    await expect(page).to_have_url(re.compile("#/agents/library"))
    await expect(sidebar(page).get_by_role("link", name="library", exact=True)).not_to_be_in_viewport()


async def test_the_theme_is_chosen_and_kept(visit: Any, studio: ServedConsole):
    page = await visit(studio.console)
    background = "() => getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(background)
    await page.get_by_role("button", name="System theme").click()
    await page.get_by_role("button", name="Light theme").click()
    await expect(page.get_by_role("button", name="Dark theme")).to_be_visible()
    dark = await page.evaluate(background)
    assert dark != light
    await page.reload()
    await expect(page.get_by_role("button", name="Dark theme")).to_be_visible()
    assert await page.evaluate(background) == dark


@pytest.mark.console
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_no_place_has_a_serious_problem_or_sticks_out(
    visit: Any, studio: ServedConsole, subtests: pytest.Subtests, view: Any, dark: bool
):
    page = await visit(studio.console, view=view, dark=dark)
    for place in ROUTES:
        with subtests.test(place):
            await page.evaluate("(place) => { location.hash = place }", place)
            await expect(page.get_by_role("main")).not_to_be_empty()
            assert await axe(page) == []
            assert await sideways(page) == []
