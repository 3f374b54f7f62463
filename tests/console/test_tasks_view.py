"""The list of tasks: filters, deep links, live updates, keys, and who sees which."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest
from console.browser import DESKTOP, PHONE, View
from console.driving import axe, press, sideways, tab_to
from console.hostile import LARGE, NAMES, TEXTS
from console.sending import send, state_of
from console.serving import AGENTS, HERE, ServedConsole
from console.watching import Watch
from playwright.async_api import Locator, Page, expect

from dragoman import Client
from dragoman.model.task import Task

STUDIO = f"{HERE / 'agents.py'}:studio"
THEMES = [pytest.param(False, id="light"), pytest.param(True, id="dark")]


def grid(page: Page) -> Locator:
    return page.get_by_role("grid", name="Tasks")


def titles(page: Page) -> Locator:
    """The links to the tasks of the list, from the top."""
    return grid(page).get_by_role("link").and_(page.locator("[href*='#/tasks/']"))


@pytest.fixture
def context() -> str:
    """A context of this test's own: others use the server, too."""
    return f"context-{uuid4()}"


# -- the main ways -----------------------------------------------------------------------------------------------------


async def test_a_task_is_found_by_filters_opened_and_seen_as_it_was(
    visit: Any, studio: ServedConsole, client: Client, context: str
):
    await send(client, tool="report", arguments={"title": "Spring"}, context=context)
    await send(client, tool="fail", arguments={"text": "no doors"}, context=context)
    page = await visit(studio.address(f"#/tasks?context={context}"))
    await expect(titles(page)).to_have_count(2)
    await page.get_by_label("State").select_option(label="completed")
    await expect(titles(page)).to_have_count(1)
    await expect(page).to_have_url(re.compile("state=TASK_STATE_COMPLETED"))
    await titles(page).click()
    await expect(state_of(page)).to_have_text("completed")
    slider = page.get_by_role("slider", name="Event")
    await expect(slider).to_have_attribute("aria-valuetext", re.compile("completed"))
    await page.get_by_role("tab", name="Artifacts").click()
    await expect(page.get_by_role("heading", name="figures")).to_be_visible()
    await slider.focus()
    await press(page, "Home")
    await expect(page.get_by_role("heading", name="No artifacts")).to_be_visible()
    await expect(page.get_by_text(re.compile("As it was after event 1 of"))).to_be_visible()
    await expect(page).to_have_url(re.compile("at=1"))
    await page.get_by_role("button", name="Show it as it is now").click()
    await expect(page.get_by_role("heading", name="figures")).to_be_visible()
    await page.go_back()
    await expect(titles(page)).to_have_count(1)
    await expect(page.get_by_label("State")).to_have_value("TASK_STATE_COMPLETED")


async def test_a_new_task_appears_by_itself_and_is_canceled(
    visit: Any, studio: ServedConsole, client: Client, context: str
):
    page = await visit(studio.address(f"#/tasks?context={context}"))
    await expect(page.get_by_role("heading", name="No task matches")).to_be_visible()
    task = await send(client, tool="wait", context=context, wait=False)
    await expect(grid(page).get_by_text("working", exact=True)).to_be_visible()
    await grid(page).focus()
    await press(page, "ArrowDown", "Enter")
    await expect(state_of(page)).to_have_text("working")
    await page.get_by_role("button", name="Cancel task").click()
    await page.get_by_role("dialog").get_by_role("button", name="Let it run").click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(state_of(page)).to_have_text("working")
    await page.get_by_role("button", name="Cancel task").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel the task").click()
    await expect(state_of(page)).to_have_text("canceled")
    await expect(page.get_by_role("button", name="Cancel task")).to_have_count(0)
    assert (await client.get_task(task)).state == "TASK_STATE_CANCELED"
    await page.go_back()
    await expect(grid(page).get_by_text("canceled", exact=True)).to_be_visible()


# -- filters -----------------------------------------------------------------------------------------------------------


@pytest.mark.console
async def test_every_filter_is_in_the_address_and_can_be_gone_back_from(
    visit: Any, studio: ServedConsole, client: Client, context: str
):
    done = await send(client, "a walk in Porto", context=context)
    await send(client, tool="fail", arguments={"text": "Lisbon is full"}, context=context)
    async with Client(f"{studio.url}/agents/library") as library:
        await send(library, "cities", context=context)
    page = await visit(studio.address("#/tasks"))
    await page.get_by_label("Context").fill(context)
    await expect(titles(page)).to_have_count(3)
    await expect(page).to_have_url(re.compile(f"context={context}"))

    await page.get_by_label("Agent").select_option("library")
    await expect(titles(page)).to_have_text(["cities"])
    await page.get_by_label("Agent").select_option(label="Any agent")
    await expect(titles(page)).to_have_count(3)

    search = page.get_by_role("searchbox", name="Text")
    for words, found in (("PORTO", 1), ("lisbon is FULL", 1), (done.id, 1), (context[:-3], 3), ("Porto Lisbon", 0)):
        await search.fill(words)
        await expect(page.get_by_text(re.compile(f"^{found} found in"))).to_be_visible()
        await expect(titles(page)).to_have_count(found)
    await expect(page.get_by_role("heading", name="No task matches")).to_be_visible()
    await search.fill("")
    await expect(titles(page)).to_have_count(3)

    time = page.get_by_role("combobox", name="Time", exact=True)
    for preset in ("Last hour", "Last day", "Last week"):
        await time.select_option(label=preset)
        await expect(titles(page)).to_have_count(3)
    await expect(page).to_have_url(re.compile("since=7d"))
    await time.select_option(label="From … to …")
    await page.get_by_label("To", exact=True).fill("2001-01-01T00:00")
    await expect(page.get_by_role("heading", name="No task matches")).to_be_visible()
    await page.get_by_label("To", exact=True).fill("")
    await page.get_by_label("From", exact=True).fill("2100-01-01T00:00")
    await expect(page.get_by_role("heading", name="No task matches")).to_be_visible()
    await page.go_back()
    await expect(titles(page)).to_have_count(3)

    await page.get_by_label("State").select_option(label="failed")
    await expect(titles(page)).to_have_count(1)
    await page.reload()
    await expect(page.get_by_label("State")).to_have_value("TASK_STATE_FAILED")
    await expect(titles(page)).to_have_count(1)
    await page.get_by_role("button", name="Clear filters").click()
    await expect(page).to_have_url(re.compile("#/tasks$"))
    await expect(page.get_by_label("Context")).to_have_value("")
    await page.go_back()
    await expect(titles(page)).to_have_count(1)


@pytest.mark.console
async def test_a_context_of_the_list_leads_to_its_tasks(
    visit: Any, studio: ServedConsole, client: Client, context: str
):
    for number in range(3):
        await send(client, f"walk {number}", context=context)
    page = await visit(studio.address(f"#/tasks?text={context}"))
    await expect(titles(page)).to_have_text(["walk 2", "walk 1", "walk 0"])
    await grid(page).get_by_role("link", name=context).first.click()
    await expect(page.get_by_label("Context")).to_have_value(context)
    await titles(page).first.click()
    await expect(state_of(page)).to_have_text("completed")  # until then, the links are those of the list
    await page.get_by_role("main").get_by_role("link", name=context).click()
    await expect(page).to_have_url(re.compile(f"#/tasks.context={context}$"))
    await expect(titles(page)).to_have_count(3)


@pytest.mark.console
async def test_wrong_filters_in_an_address_are_an_alert(visit: Any, watch: Watch, studio: ServedConsole):
    watch.allow("status of 400")
    page = await visit(studio.address("#/tasks?state=TASK_STATE_ODD"))
    await expect(page.get_by_role("alert")).to_contain_text("state is one like TASK_STATE_WORKING")
    await page.get_by_role("button", name="Clear filters").click()
    await expect(page.get_by_role("alert")).to_have_count(0)
    await page.goto(studio.address("#/tasks?since=yesterday"))
    await expect(page.get_by_role("heading", level=1, name="Tasks")).to_be_visible()
    await expect(page.get_by_role("alert")).to_have_count(0)


# -- live updates ------------------------------------------------------------------------------------------------------


@pytest.mark.console
async def test_states_change_by_themselves_and_leave_a_filter(
    visit: Any, studio: ServedConsole, client: Client, context: str
):
    first = await send(client, tool="wait", context=context, wait=False)
    second = await send(client, tool="wait", context=context, wait=False)
    page = await visit(studio.address(f"#/tasks?context={context}"))
    await expect(titles(page)).to_have_count(2)
    await expect(grid(page).get_by_text("working", exact=True)).to_have_count(1)
    await expect(grid(page).get_by_text("submitted", exact=True)).to_have_count(1)  # until the first is over
    await client.cancel_task(first)
    await expect(grid(page).get_by_text("canceled", exact=True)).to_have_count(1)
    await expect(grid(page).get_by_text("working", exact=True)).to_have_count(1)
    await page.get_by_label("State").select_option(label="canceled")
    await expect(titles(page)).to_have_count(1)
    await client.cancel_task(second)
    await expect(titles(page)).to_have_count(2)


@pytest.mark.console
async def test_new_tasks_wait_while_the_reader_is_further_down(
    visit: Any, studio: ServedConsole, client: Client, context: str
):
    for number in range(60):
        await send(client, f"walk {number}", context=context)
    page = await visit(studio.address(f"#/tasks?context={context}"))
    await expect(titles(page).first).to_have_text("walk 59")
    await grid(page).hover()
    await page.mouse.wheel(0, 1000)
    await expect(page.get_by_role("link", name="walk 59", exact=True)).not_to_be_in_viewport()
    await expect(page.get_by_role("link", name="walk 30", exact=True)).to_be_in_viewport()
    await send(client, "the newest walk", context=context)
    fresh = page.get_by_role("button", name="1 new or changed task")
    await expect(fresh).to_be_visible()
    await expect(page.get_by_role("link", name="walk 30", exact=True)).to_be_in_viewport()
    await fresh.click()
    await expect(page.get_by_role("link", name="the newest walk")).to_be_in_viewport()
    await expect(fresh).to_have_count(0)


@pytest.mark.console
async def test_the_way_back_leads_to_the_same_place_of_the_list(
    visit: Any, studio: ServedConsole, client: Client, context: str
):
    for number in range(60):
        await send(client, f"walk {number}", context=context)
    page = await visit(studio.address(f"#/tasks?context={context}"))
    await grid(page).hover()
    await page.mouse.wheel(0, 1200)
    await page.get_by_role("link", name="walk 25", exact=True).click()
    await expect(page.get_by_role("heading", level=1, name="walk 25")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("link", name="walk 25", exact=True)).to_be_in_viewport()


@pytest.mark.console
async def test_a_server_that_is_gone_and_comes_back(visit: Any, watch: Watch, serve: Any):
    watch.allow("ERR_CONNECTION_REFUSED|status of 401|ERR_EMPTY_RESPONSE|ERR_CONNECTION_RESET")
    server = serve(AGENTS)
    async with Client(f"{server.url}/agents/studio") as client:
        await send(client, "before")
        page = await visit(server.address("#/tasks"))
        await expect(page.get_by_role("link", name="before")).to_be_visible()
        server.stop()
        await expect(page.get_by_text(re.compile("Live updates have stopped"))).to_be_visible()
        await expect(page.get_by_role("link", name="before")).to_be_visible()
        server.restart()
        # Its token is another one: the page says how to come back.
        await expect(page.get_by_role("main").get_by_text("dragoman serve")).to_be_visible()
        await expect(page.get_by_role("main")).to_contain_text("dragoman open")
        await expect(page.get_by_role("banner")).to_contain_text("visitor")
        await page.goto(server.address("#/tasks"))
        await expect(page.get_by_role("link", name="before")).to_be_visible()
        await expect(page.get_by_role("banner")).to_contain_text("operator")


# -- keys, empty lists, small windows ----------------------------------------------------------------------------------


@pytest.mark.console
async def test_the_list_is_led_by_keys(visit: Any, studio: ServedConsole, client: Client, context: str):
    for number in range(40):
        await send(client, f"walk {number}", context=context)
    page = await visit(studio.address(f"#/tasks?context={context}"))
    await expect(titles(page).first).to_have_text("walk 39")
    selected = grid(page).locator("[aria-selected=true]")

    async def at(title: str) -> None:
        await expect(selected.get_by_role("link", name=title, exact=True)).to_be_in_viewport()
        active = await grid(page).get_attribute("aria-activedescendant")
        assert active == await selected.get_attribute("id")

    await tab_to(page, grid(page))
    for key, title in {"ArrowDown": "walk 39", "End": "walk 0", "ArrowUp": "walk 1", "Home": "walk 39"}.items():
        await press(page, key)
        await at(title)
    await press(page, "ArrowDown", "ArrowDown")
    await at("walk 37")
    await press(page, "PageDown", "PageUp")
    await at("walk 37")
    await press(page, "Tab")
    await expect(page.get_by_role("link", name="walk 37", exact=True)).to_be_focused()
    await press(page, "Shift+Tab", "Enter")
    await expect(page.get_by_role("heading", level=1, name="walk 37")).to_be_visible()
    await page.go_back()
    await at("walk 37")
    await expect(grid(page)).to_be_focused()
    await press(page, "ArrowDown", "/")
    await expect(page.get_by_role("searchbox", name="Text")).to_be_focused()
    await page.keyboard.type("walk 12")
    await press(page, "Enter")
    await expect(titles(page)).to_have_text(["walk 12"])


@pytest.mark.console
async def test_a_server_without_tasks_says_how_to_make_one(visit: Any, serve: Any):
    server = serve(AGENTS)
    page = await visit(server.address("#/tasks"))
    await expect(page.get_by_role("heading", name="No tasks yet")).to_be_visible()
    assert await axe(page) == []
    await page.get_by_role("link", name="Send a message").click()
    await page.get_by_role("textbox", name="Message").fill("hello there")
    await press(page, "Enter")
    await expect(page.get_by_text("Message 1").first).to_be_visible()
    await press(page, "Escape")
    await page.get_by_role("navigation", name="Console").get_by_role("link", name="Tasks", exact=True).click()
    await expect(titles(page)).to_have_text(["hello there"])


@pytest.mark.console
@pytest.mark.parametrize("dark", THEMES)
@pytest.mark.parametrize("view", [pytest.param(DESKTOP, id="desktop"), pytest.param(PHONE, id="phone")])
async def test_the_list_is_accessible_and_fits(
    visit: Any, studio: ServedConsole, client: Client, context: str, view: View, dark: bool
):
    for text in ("a walk", "long words " * 40):
        await send(client, text, context=context)
    await send(client, tool="fail", context=context)
    await send(client, tool="one_question", context=context)
    page = await visit(studio.address(f"#/tasks?context={context}"), view=view, dark=dark)
    await expect(titles(page)).to_have_count(4)
    if view is PHONE:
        assert await axe(page) == [] and await sideways(page) == []
        await page.get_by_role("button", name="Filters", exact=True).click()
    await page.get_by_role("combobox", name="Time", exact=True).select_option(label="From … to …")
    await page.get_by_label("From", exact=True).fill("2020-01-01T00:00")
    await expect(titles(page)).to_have_count(4)
    await grid(page).focus()
    await press(page, "ArrowDown")
    assert await axe(page) == [] and await sideways(page) == []
    await page.get_by_role("searchbox", name="Text").fill("nothing like this")
    await expect(page.get_by_role("heading", name="No task matches")).to_be_visible()
    assert await axe(page) == [] and await sideways(page) == []


# -- who sees which ----------------------------------------------------------------------------------------------------


@pytest.mark.console
async def test_users_see_their_own_tasks_and_an_administrator_all(visit: Any, watch: Watch, serve: Any):
    watch.allow("status of 40[14]")
    server = serve(STUDIO, "--auth", "bearer", "--auth", "cookie")
    running: dict[str, Task] = {}
    for name, permissions in {"ann": [], "ben": [], "root": ["--permission", "admin"]}.items():
        server.users("add", name, "--no-password", *permissions)
        async with Client(server.url, auth=server.users("key", name)) as client:
            await send(client, f"a word of {name}")
            running[name] = await send(client, tool="wait", wait=False)

    async def signed_in(name: str, place: str = "#/tasks") -> Page:
        cookie = {"name": "user", "value": server.users("cookie", name), "domain": "127.0.0.1", "path": "/"}
        fixed = {"expires": -1, "httpOnly": True, "secure": False, "sameSite": "Lax"}
        return await visit(f"{server.url}/{place}", storage_state={"cookies": [cookie | fixed], "origins": []})

    page = await visit(f"{server.url}/#/tasks")
    await expect(page.get_by_role("heading", name="Tasks need a key")).to_be_visible()
    await expect(page.get_by_text("a word of")).to_have_count(0)

    page = await signed_in("ann")
    await expect(titles(page)).to_have_count(2)
    await expect(page.get_by_role("link", name="a word of ann")).to_be_visible()
    await expect(page.get_by_label("Owner")).to_have_count(0)
    await page.goto(f"{server.url}/#/tasks/{running['ben'].id}")
    await expect(page.get_by_role("heading", name="There is no such task")).to_be_visible()
    await page.goto(f"{server.url}/#/tasks/{running['ann'].id}")
    await page.get_by_role("button", name="Cancel task").click()
    await page.get_by_role("button", name="Cancel the task").click()
    await expect(state_of(page)).to_have_text("canceled")

    page = await signed_in("root")
    await expect(titles(page)).to_have_count(6)
    await page.get_by_label("Owner").fill("ben")
    await expect(titles(page)).to_have_count(2)
    await grid(page).get_by_text("working", exact=True).click()
    await page.get_by_role("button", name="Cancel task").click()
    await expect(page.get_by_role("dialog")).to_contain_text("The task belongs to ben")
    await page.get_by_role("button", name="Cancel the task").click()
    await expect(state_of(page)).to_have_text("canceled")
    assert re.search(rf"canceled user=ben agent=studio task={running['ben'].id} by=root", server.output)

    page = await visit(server.address("#/tasks"))  # with the token
    await expect(titles(page)).to_have_count(6)
    await grid(page).get_by_text("working", exact=True).click()
    await page.get_by_role("button", name="Cancel task").click()
    await page.get_by_role("button", name="Cancel the task").click()
    await expect(state_of(page)).to_have_text("canceled")
    assert re.search(rf"canceled user=root agent=studio task={running['root'].id} by=console-token", server.output)


# -- hostile words -----------------------------------------------------------------------------------------------------


@pytest.mark.console
@pytest.mark.timeout(240)
@pytest.mark.parametrize("view", [pytest.param(DESKTOP, id="desktop"), pytest.param(PHONE, id="phone")])
async def test_hostile_words_and_ids_are_data_in_the_list(
    visit: Any, hostile: ServedConsole, subtests: pytest.Subtests, view: View
):
    page = await visit(hostile.address("#/tasks"), view=view)
    async with Client(f"{hostile.url}/agents/hostile") as client:
        for key in TEXTS.keys() - LARGE:
            await send(client, TEXTS[key])
        for key, name in NAMES.items():
            with subtests.test(key):
                # What is not printable is no id of a context to the server.
                context = name[:200] if name.isprintable() else f"<b>{key}</b>"
                task = await send(client, name, context=context)
                go = "([place, name]) => { location.hash = place + encodeURIComponent(name) }"
                await page.evaluate(go, ["#/tasks?context=", context])
                await expect(grid(page).locator(f"[href='#/tasks/{task.id}']")).to_be_attached()
                assert await sideways(page) == []
                await page.evaluate(go, ["#/tasks/", task.id])
                await expect(page.get_by_role("tab", name="Timeline")).to_be_visible()
                assert await sideways(page) == []
    await page.evaluate("() => { location.hash = '#/tasks' }")
    await expect(titles(page).first).to_be_visible()
    await grid(page).focus()
    await press(page, "End")
    await expect(grid(page).locator("[aria-selected=true]")).to_be_in_viewport()
    assert await axe(page) == [] and await sideways(page) == []
