"""The server in the console: figures that move, what runs, the errors that callers got a reference for, and nodes."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from console.browser import DESKTOP, PHONE
from console.driving import axe, sideways
from console.serving import AGENTS, ServedConsole
from console.watching import Watch
from playwright.async_api import Locator, Page, expect

from dragoman import Client
from dragoman.errors import TaskEnded

pytestmark = pytest.mark.console


def figure(page: Page, name: str) -> Locator:
    """The value of a figure."""
    return page.locator("dl.figures > div").filter(has=page.get_by_text(name, exact=True)).get_by_role("definition")


def table(page: Page, title: str) -> Locator:
    """The rows of the table below a heading, without its head."""
    section = page.locator("section").filter(has=page.get_by_role("heading", name=re.compile(f"^{title}")))
    return section.locator("tbody").get_by_role("row")


async def test_figures_move_under_load(visit: Any, serve: Any):
    server: ServedConsole = serve(AGENTS)
    page = await visit(server.address("#/server"))
    await expect(figure(page, "Tasks")).to_have_text("0")
    await expect(figure(page, "Running")).to_have_text("0")
    await expect(page.get_by_text("Nothing.", exact=True)).to_be_visible()
    async with Client(f"{server.url}/agents/library") as client:
        await asyncio.gather(*(client.send("cities") for _ in range(40)))
    await expect(figure(page, "Tasks")).to_have_text("40")
    await expect(page.get_by_role("link", name="completed 40")).to_be_visible()
    method = table(page, "Methods").filter(has_text="SendMessage")
    await expect(method).to_contain_text("library")
    await expect(method.get_by_role("cell").nth(2)).to_have_text("40")
    await expect(method.get_by_role("cell").nth(4)).to_have_text(re.compile(r"\d ?m?s"))
    requests = page.get_by_role("figure").filter(has_text="Requests per second")
    await expect(requests.get_by_role("img")).to_have_accessible_name(re.compile("Requests per second"))
    line = requests.locator("path").first
    moved = "(path) => new Set(path.getAttribute('d').match(/ [\\d.]+/g)).size > 1"
    await page.wait_for_function(moved, arg=await line.element_handle())
    await expect(figure(page, "Store")).to_have_text(re.compile(r"^[\d.]+ [kM]B$"))
    await page.get_by_role("link", name="completed 40").click()
    await expect(page).to_have_url(re.compile("#/tasks.state=TASK_STATE_COMPLETED"))


async def test_running_tasks_are_listed_until_they_end(visit: Any, serve: Any):
    server: ServedConsole = serve(AGENTS)
    page = await visit(server.address("#/server"))
    async with Client(f"{server.url}/agents/studio") as client:
        tasks = [(await client.send(tool="wait", wait=False)).id for _ in range(3)]
        rows = table(page, "At work now")
        await expect(rows).to_have_count(3)
        await expect(figure(page, "Running")).to_have_text("3")
        await expect(rows.filter(has_text=tasks[0])).to_contain_text("wait")
        for task in tasks[1:]:
            await client.cancel_task(task)
        await expect(rows).to_have_count(1)
        async for _ in client.subscribe(tasks[0]):
            await expect(figure(page, "Streams open")).to_have_text("1")
            break
        await rows.get_by_role("link", name=tasks[0]).click()
        await expect(page).to_have_url(re.compile(f"#/tasks/{tasks[0]}"))
        await client.cancel_task(tasks[0])
        await expect(page.get_by_role("main").get_by_text("canceled", exact=True).first).to_be_visible()


async def test_an_error_is_found_by_the_reference_that_its_caller_got(visit: Any, serve: Any):
    server: ServedConsole = serve(AGENTS)
    page = await visit(server.address("#/server"))
    await expect(page.get_by_text("None since the server started.")).to_be_visible()
    async with Client(f"{server.url}/agents/studio") as client:
        with pytest.raises(TaskEnded) as failed:
            await client.call("broken")
    found = re.search(r"reference ([0-9a-f]{6})", str(failed.value))
    assert found is not None, failed.value
    row = table(page, "Recent errors").filter(has_text=found[1])
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text("studio")
    await expect(row).to_contain_text(re.compile(r"RuntimeError in agents\.py:\d+"))
    assert "1234" not in await page.content(), "the text of an exception is in the log alone"
    await row.get_by_role("link").click()
    await expect(page.get_by_role("main").get_by_text("failed", exact=True).first).to_be_visible()


async def test_the_node_the_store_and_the_process_are_named(visit: Any, serve: Any):
    server: ServedConsole = serve(AGENTS)
    page = await visit(server.address("#/server"))
    node = table(page, "Nodes")
    await expect(node).to_have_count(1)
    await expect(node).to_contain_text("alive")
    await expect(node).to_contain_text("studio, library, parrot")
    await expect(page.get_by_role("main").get_by_text(re.compile(r"process \d+ · Dragoman \d"))).to_be_visible()
    await expect(page.get_by_role("main").get_by_text(re.compile(r"sqlite, .*tasks\.db"))).to_be_visible()
    await expect(figure(page, "Up for")).to_have_text(re.compile(r"\d+(\.\d)? (ms|s)"))


async def test_a_store_in_memory_has_no_size(visit: Any, serve: Any):
    server: ServedConsole = serve(AGENTS, "--store", "memory:")
    page = await visit(server.address("#/server"))
    await expect(figure(page, "Store")).to_have_text("\N{EN DASH}")
    await expect(page.get_by_text("the memory of this process")).to_be_visible()


async def test_a_limit_that_is_hit_is_counted(visit: Any, watch: Watch, serve: Any):
    watch.allow("status of 429")
    server: ServedConsole = serve(AGENTS, "--limits-rate", "5", "--limits-burst", "5")
    page = await visit(server.address("#/server"))
    await expect(figure(page, "Tasks")).to_be_visible()
    async with Client(f"{server.url}/agents/library") as client:
        await asyncio.gather(*(client.send("cities") for _ in range(30)), return_exceptions=True)
    await expect(page.get_by_role("heading", name="Limits hit")).to_be_visible(timeout=20_000)


async def test_a_server_that_is_gone_leaves_the_last_figures_and_is_found_again(visit: Any, watch: Watch, serve: Any):
    watch.allow("ERR_CONNECTION_REFUSED|status of 401")
    server: ServedConsole = serve(AGENTS)
    page = await visit(server.address("#/server"))
    await expect(figure(page, "Tasks")).to_have_text("0")
    server.kill()
    await expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached. Is it still running?")
    await expect(figure(page, "Tasks")).to_have_text("0")
    server.restart()
    await expect(page.get_by_role("heading", name="Figures of the server need a key")).to_be_visible()
    await page.goto(server.address("#/server"))
    await expect(figure(page, "Tasks")).to_have_text("0")


@pytest.mark.timeout(240)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_full_figures_have_no_serious_problem_and_do_not_stick_out(
    visit: Any, studio: ServedConsole, view: Any, dark: bool
):
    page = await visit(studio.address("#/server"), view=view, dark=dark)
    await expect(figure(page, "Tasks")).to_be_visible()
    async with Client(f"{studio.url}/agents/studio") as client:
        waiting = await client.send(tool="wait", wait=False)
        await client.send(tool="broken")
        await expect(table(page, "Recent errors").first).to_be_visible()
        await expect(table(page, "At work now").first).to_be_visible()
        await expect(table(page, "Methods").first).to_be_visible()
        assert await axe(page) == []
        assert await sideways(page) == []
        await client.cancel_task(waiting.id)
