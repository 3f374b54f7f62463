"""The wire in the console: each exchange as it went, the same in every version, and commands that do it again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from console.browser import DESKTOP, PHONE
from console.driving import axe, press, sidebar, sideways
from console.serving import GUARDED, ServedConsole, environment
from console.watching import Watch
from playwright.async_api import Locator, Page, expect

from dragoman import Client


def exchanges(page: Page) -> Locator:
    return page.get_by_role("list", name="Exchanges").get_by_role("listitem")


def detail(page: Page) -> Locator:
    return page.get_by_role("region", name=re.compile(r"^Exchange \d+"))


async def say(page: Page, server: ServedConsole, text: str, answer: str) -> None:
    """Send a message in a new conversation with the studio, and wait for the answer."""
    await page.goto(server.address("#/agents/studio/chat"))
    await page.get_by_role("textbox", name="Message").fill(text)
    await press(page, "Enter")
    await expect(page.get_by_role("log").get_by_text(answer)).to_be_visible()


async def go(page: Page, place: str) -> None:
    """Go to a place of the console without loading the page again: what it has seen is in its memory."""
    await page.evaluate("(place) => { location.hash = place }", place)


async def copied(page: Page, button: Locator) -> str:
    """Press a copy button, and return what is in the clipboard then."""
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.evaluate("() => navigator.clipboard.writeText('')")
    await button.click()
    await expect(page.get_by_role("status").filter(has_text="Copied")).to_be_visible()
    return await page.evaluate("() => navigator.clipboard.readText()")


async def snippet(page: Page, heading: str) -> str:
    """The snippet below a heading, as its button copies it."""
    section = page.get_by_role("heading", name=heading).locator("xpath=following-sibling::div[1]")
    return await copied(page, section.get_by_role("button"))


def run(words: list[str] | str, folder: Path) -> str:
    """Run a command as a person does who has this Dragoman installed; return what it prints."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    dragoman = bin_folder / "dragoman"
    dragoman.write_text(f'#!/bin/sh\nexec {sys.executable} -m dragoman.cli.main "$@"\n')
    dragoman.chmod(0o755)
    done = subprocess.run(
        words,
        shell=isinstance(words, str),
        cwd=folder,
        env=environment(folder, PATH=f"{bin_folder}:{os.environ['PATH']}"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=40,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def events_of(text: str) -> list[dict[str, Any]]:
    """The data of server-sent events."""
    return [json.loads(line.removeprefix("data:")) for line in text.split("\n") if line.startswith("data:")]


def streamed(events: list[dict[str, Any]]) -> str:
    """The text of the artifacts in the events of a stream of A2A 1.0."""
    found = [each.get("result", each) for each in events]
    updates = (each["artifactUpdate"]["artifact"]["parts"] for each in found if "artifactUpdate" in each)
    return "".join(part.get("text", "") for parts in updates for part in parts)


# -- the main way ------------------------------------------------------------------------------------------------------


async def test_an_exchange_is_seen_as_it_went_and_done_again_in_the_shell(
    visit: Any, studio: ServedConsole, tmp_path: Path
):
    page = await visit(studio.console)
    await say(page, studio, 'it\'s a "quote" & $HOME', "Message 1:")
    await sidebar(page).get_by_role("link", name="Wire").click()
    await exchanges(page).filter(has_text="SendStreamingMessage").get_by_role("link").click()
    raw = detail(page)
    await expect(raw.get_by_text(f"POST {studio.url}/agents/studio")).to_be_visible()
    await expect(raw.get_by_text("HTTP 200")).to_be_visible()
    await expect(raw.get_by_text("text/event-stream").first).to_be_visible()
    await expect(raw.get_by_role("group", name="Request body")).to_contain_text('"method": "SendStreamingMessage"')
    event = raw.get_by_role("list", name="Events").get_by_role("button").last
    await expect(event).to_contain_text("TASK_STATE_COMPLETED")
    await event.click()
    await expect(raw.get_by_role("list", name="Events").get_by_role("group").last).to_contain_text('"statusUpdate"')
    await page.get_by_role("tab", name="To copy").click()
    message = 'Message 1: **it\'s** **a** **"quote"** **&** **$HOME**'
    assert streamed(events_of(run(await snippet(page, "With curl"), tmp_path))).strip() == message
    assert message in run(await snippet(page, "In the shell"), tmp_path)


# -- what is seen ------------------------------------------------------------------------------------------------------


@pytest.mark.console
async def test_events_come_in_while_they_are_looked_at(visit: Any, studio: ServedConsole):
    page = await visit(studio.address("#/agents/studio/skills/paced"))
    await page.get_by_role("button", name="Run").click()
    result = page.get_by_role("region", name="Result")
    await expect(result.get_by_text("waiting for the first message")).to_be_visible()
    task = (await result.get_by_role("link", name="Task", exact=True).get_attribute("href") or "").rpartition("/")[2]
    await sidebar(page).get_by_role("link", name="Wire").click()
    await expect(exchanges(page).first).to_contain_text("open")
    await exchanges(page).first.get_by_role("link").click()
    events = detail(page).get_by_role("list", name="Events").get_by_role("listitem")
    async with Client(f"{studio.url}/agents/studio") as client:
        for word in ("one", "two", "three"):
            await client.send(word, task=task, wait=False)
            await expect(events.filter(has_text=f"after {word}")).to_have_count(1)
    await expect(events.last).to_contain_text("TASK_STATE_COMPLETED")
    await expect(exchanges(page).first).not_to_contain_text("open")
    times = [await each.inner_text() for each in await events.locator("button > .muted:first-child").all()]
    assert all(re.fullmatch(r"\+[\d.<]+ ?\d* (ms|s)", each) for each in times), times
    ids = [
        int(re.sub(r"\D", "", await each.inner_text())) for each in await events.locator(".muted:nth-child(2)").all()
    ]
    assert all(before < after for before, after in pairwise(ids)), ids


@pytest.mark.console
async def test_a_token_is_never_in_the_page_or_in_what_it_gives_away(
    visit: Any, watch: Watch, serve: Any, tmp_path: Path
):
    watch.allow("status of 401")
    server = serve(GUARDED, "--auth", "bearer")
    server.users("add", "ann", "--no-password")
    key = server.users("key", "ann")
    page = await visit(server.address("#/agents/vault"))
    await page.get_by_role("button", name="Enter credentials").click()
    await page.get_by_label("Token").fill(key)
    await page.get_by_role("button", name="Use").click()
    await expect(page.get_by_text("Your credentials for this agent are kept")).to_be_visible()
    await page.get_by_role("button", name="Try whoami").click()
    await page.get_by_role("button", name="Run").click()
    await expect(page.get_by_text("You are ann.")).to_be_visible()
    await sidebar(page).get_by_role("link", name="Wire").click()
    await exchanges(page).first.get_by_role("link").click()
    await expect(detail(page).get_by_text("Bearer ••••••••")).to_be_visible()
    for tab in ("As it went", "Every version", "To copy"):
        await page.get_by_role("tab", name=tab).click()
        await expect(page.get_by_role("tabpanel").get_by_role("button").first).to_be_visible()
        assert key not in await page.content()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download").click()
    saved = tmp_path / "wire.json"
    await (await download.value).save_as(saved)
    assert key not in saved.read_text()
    stored = await page.evaluate("() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, location.href])")
    assert key not in stored
    command = await snippet(page, "With curl")
    command = command.replace("curl ", f"curl -H 'Authorization: Bearer {key}' ", 1)
    assert "You are ann." in streamed(events_of(run(command, tmp_path)))


@pytest.mark.console
async def test_the_other_binding_is_really_used(visit: Any, watch: Watch, studio: ServedConsole, tmp_path: Path):
    page = await visit(studio.address("#/wire"))
    await expect(page.get_by_role("heading", name="Nothing has been sent yet")).to_be_visible()
    await page.get_by_role("radio", name="HTTP+JSON").check()
    await say(page, studio, "hello", "Message 1:")
    assert f"{studio.url}/agents/studio/message:stream" in watch.requests
    await go(page, "#/wire")
    await expect(page.get_by_role("radio", name="HTTP+JSON")).to_be_checked()
    sent = exchanges(page).filter(has_text="SendStreamingMessage")
    await sent.get_by_role("link").click()
    await expect(page.get_by_text(f"POST {studio.url}/agents/studio/message:stream")).to_be_visible()
    await expect(detail(page).get_by_role("heading", level=2)).to_contain_text("HTTP+JSON")
    await page.get_by_role("tab", name="To copy").click()
    command = await snippet(page, "With curl")
    assert "/message:stream" in command
    assert "Message 1" in streamed(events_of(run(command, tmp_path)))
    await page.reload()
    await page.get_by_role("radio", name="JSON-RPC").check()
    await say(page, studio, "again", "Message 1:")
    assert f"{studio.url}/agents/studio" in watch.requests


# -- every version -----------------------------------------------------------------------------------------------------

EVERY = {
    "0.1": ["JSON-RPC"],
    "0.2": ["JSON-RPC", "HTTP+JSON", "gRPC as JSON"],
    "0.3": ["JSON-RPC", "HTTP+JSON", "gRPC as JSON"],
    "1.0": ["JSON-RPC", "HTTP+JSON", "gRPC as JSON"],
    "1.1": ["JSON-RPC", "HTTP+JSON", "gRPC as JSON"],
}
METHODS = {
    "0.1": "tasks/sendSubscribe",
    "0.2": "message/stream",
    "0.3": "message/stream",
    "1.0": "SendStreamingMessage",
}


@pytest.mark.console
@pytest.mark.timeout(240)
async def test_every_version_and_binding_can_be_chosen_and_its_command_works(
    visit: Any, studio: ServedConsole, subtests: pytest.Subtests, tmp_path: Path
):
    page = await visit(studio.console)
    await say(page, studio, "hello there", "Message 1:")
    await go(page, "#/wire")
    await exchanges(page).filter(has_text="SendStreamingMessage").get_by_role("link").click()
    await page.get_by_role("tab", name="Every version").click()
    version = page.get_by_role("combobox", name="Version")
    binding = page.get_by_role("combobox", name="Binding")
    await expect(version).to_have_value("1.0")
    assert {text.removeprefix("A2A ") for text in await version.locator("option").all_inner_texts()} == set(EVERY)
    for number, names in EVERY.items():
        await version.select_option(number)
        assert await binding.locator("option").all_inner_texts() == names
        for name in names:
            with subtests.test(name, number=number):
                await binding.select_option(name)
                await expect(page).to_have_url(re.compile(f"version={number}"))
                panel = page.get_by_role("tabpanel")
                await expect(panel.get_by_role("heading", name="Events")).to_be_visible()
                command = await snippet(page, "As a command")
                if name == "gRPC as JSON":
                    assert command.startswith("grpcurl")
                    await expect(
                        panel.get_by_text(re.compile(r"\.A2AService/SendStreamingMessage")).first
                    ).to_be_visible()
                    continue
                if name == "JSON-RPC":
                    method = METHODS.get(number, "SendStreamingMessage")
                    await expect(panel.get_by_role("group", name="Request body")).to_contain_text(f'"{method}"')
                printed = run(command, tmp_path)
                assert "there" in printed
                assert not re.search(r'"error"\s*:\s*\{', printed), printed


@pytest.mark.console
async def test_a_call_that_a_version_lacks_is_explained(visit: Any, studio: ServedConsole):
    page = await visit(studio.address("#/tasks"))
    await go(page, "#/agents/studio/chat")
    await page.get_by_role("textbox", name="Message").fill("hello")
    await press(page, "Enter")
    await expect(page.get_by_role("log").get_by_text("Message 1")).to_be_visible()
    await go(page, "#/agents/library/chat")
    await page.get_by_role("textbox", name="Message").fill("cities")
    await press(page, "Enter")
    await expect(page.get_by_role("log").get_by_text("Invisible Cities")).to_be_visible()
    await go(page, "#/wire")
    await exchanges(page).filter(has_text="library").filter(has_text="SendStreamingMessage").get_by_role("link").click()
    await page.get_by_role("tab", name="Every version").click()
    await page.get_by_role("combobox", name="Version").select_option("0.3")
    await page.get_by_role("combobox", name="Binding").select_option("gRPC as JSON")
    await expect(page.get_by_role("tabpanel")).to_contain_text("only the first agent can be called")


# -- to copy -----------------------------------------------------------------------------------------------------------


@pytest.mark.console
async def test_a_call_of_a_skill_is_done_again_in_three_ways(visit: Any, studio: ServedConsole, tmp_path: Path):
    page = await visit(studio.address("#/agents/library/skills/add_book"))
    await page.get_by_role("textbox", name="title").fill("L'Étranger \\ \"été\" 'x' $(id) `id`\u2028!")
    await page.get_by_role("textbox", name="author").fill("-- Camus")
    await page.get_by_role("textbox", name="year").fill("1942")
    await page.get_by_role("button", name="Run").click()
    answer = "L'Étranger \\ \"été\" 'x' $(id) `id`\u2028! (1942) is on the shelf."
    await expect(page.get_by_role("region", name="Result").get_by_text("is on the shelf.")).to_be_visible()
    await go(page, "#/wire")
    await exchanges(page).first.get_by_role("link").click()
    await page.get_by_role("tab", name="To copy").click()
    assert streamed(events_of(run(await snippet(page, "With curl"), tmp_path))) == answer
    program = tmp_path / "program.py"
    program.write_text(await snippet(page, "In Python"))
    assert run([sys.executable, str(program)], tmp_path).strip() == answer
    assert "(1942) is on the shelf." in run(await snippet(page, "In the shell"), tmp_path)


@pytest.mark.console
@pytest.mark.timeout(240)
async def test_every_operation_of_the_page_is_done_again(
    visit: Any, studio: ServedConsole, subtests: pytest.Subtests, tmp_path: Path
):
    page = await visit(studio.console)
    await (
        page.get_by_role("textbox", name="Search tasks")
        .or_(page.get_by_role("searchbox", name="Search tasks"))
        .wait_for()
    )
    # What the page sends now and then, sent now.
    task = await page.evaluate(
        """async () => {
          const { call, userMessage } = await import("./console/lib/a2a.js");
          const { agentOf } = await import("./console/lib/session.js");
          const agent = agentOf("studio");
          const reply = await call(agent, "SendMessage", { message: userMessage([{ text: "hi -- there" }]) });
          const id = reply.task.id;
          await call(agent, "GetTask", { id });
          const { contextId } = reply.task;
          await call(agent, "ListTasks", { contextId, status: "TASK_STATE_COMPLETED", pageSize: 5 });
          return id;
        }"""
    )
    await go(page, "#/wire")
    for operation, wanted in {"SendMessage": "**hi**", "GetTask": "hi", "ListTasks": task[:8]}.items():
        with subtests.test(operation):
            await exchanges(page).filter(has_text=operation).first.get_by_role("link").click()
            await page.get_by_role("tab", name="To copy").click()
            assert wanted in run(await snippet(page, "With curl"), tmp_path)
            program = tmp_path / "program.py"
            program.write_text(await snippet(page, "In Python"))
            printed = run([sys.executable, str(program)], tmp_path)
            assert wanted in printed
            assert wanted in run(await snippet(page, "In the shell"), tmp_path)


# -- the list ----------------------------------------------------------------------------------------------------------


@pytest.mark.console
async def test_exchanges_are_filtered_walked_by_keys_linked_cleared_and_saved(
    visit: Any, studio: ServedConsole, tmp_path: Path
):
    page = await visit(studio.address("#/agents/studio/chat"))
    for text in ("alpha", "beta", "gamma"):
        await page.get_by_role("textbox", name="Message").fill(text)
        await press(page, "Enter")
        await expect(page.get_by_role("log").get_by_text(text).last).to_be_visible()
        await expect(page.get_by_role("log")).to_have_attribute("aria-busy", "false")
    await press(page, "Escape", "g", "w")
    await expect(page.get_by_role("heading", name="Wire")).to_be_visible()
    await press(page, "/")
    await expect(page.get_by_role("searchbox", name="Filter exchanges")).to_be_focused()
    await page.keyboard.type("SendStreamingMessage")
    await expect(exchanges(page)).to_have_count(3)
    await expect(page).to_have_url(re.compile("filter=SendStreamingMessage"))
    await press(page, "Tab", "Enter")
    await expect(detail(page).get_by_role("group", name="Request body")).to_contain_text('"gamma"')
    await press(page, "ArrowDown")
    await expect(detail(page).get_by_role("group", name="Request body")).to_contain_text('"beta"')
    await press(page, "End")
    await expect(detail(page).get_by_role("group", name="Request body")).to_contain_text('"alpha"')
    await press(page, "ArrowDown")
    await expect(exchanges(page).last.get_by_role("link")).to_be_focused()
    tab = page.get_by_role("tab", name="As it went")
    await tab.focus()
    await press(page, "ArrowRight")
    await expect(page.get_by_role("tab", name="Every version")).to_be_focused()
    await expect(page).to_have_url(re.compile("tab=versions"))
    await page.get_by_role("searchbox", name="Filter exchanges").fill("nothing like it")
    await expect(page.get_by_text("No exchange matches.")).to_be_visible()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download").click()
    file = await download.value
    assert re.fullmatch(r"dragoman-wire-[\dT-]+\.json", file.suggested_filename)
    await file.save_as(tmp_path / "wire.json")
    saved = json.loads((tmp_path / "wire.json").read_text())
    assert [each["operation"] for each in saved].count("SendStreamingMessage") == 3
    await page.get_by_role("button", name="Clear").click()
    await expect(page.get_by_role("heading", name="Nothing has been sent yet")).to_be_visible()


@pytest.mark.console
async def test_a_link_to_an_exchange_of_another_page_does_not_break(visit: Any, studio: ServedConsole):
    page = await visit(studio.address("#/wire/7?tab=copy"))
    await expect(page.get_by_role("heading", name="Nothing has been sent yet")).to_be_visible()


@pytest.mark.console
async def test_an_error_is_an_exchange_too(visit: Any, watch: Watch, serve: Any):
    watch.allow("status of 401|ERR_CONNECTION_REFUSED")
    server = serve(GUARDED, "--auth", "bearer")
    page = await visit(server.address("#/agents/vault/skills/whoami"))
    await page.get_by_role("button", name="Run").click()
    await expect(page.get_by_role("region", name="Result").get_by_role("alert")).to_be_visible()
    server.stop()
    await page.get_by_role("button", name="Run").click()
    await expect(page.get_by_role("region", name="Result").get_by_role("alert")).to_contain_text("cannot be reached")
    await sidebar(page).get_by_role("link", name="Wire").click()
    await expect(exchanges(page).last).to_contain_text("401")
    await exchanges(page).first.get_by_role("link").click()
    await expect(detail(page).get_by_text("The exchange ended early: cannot be reached")).to_be_visible()


@pytest.mark.console
@pytest.mark.timeout(240)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_no_tab_has_a_serious_problem_or_sticks_out(
    visit: Any, studio: ServedConsole, subtests: pytest.Subtests, view: Any, dark: bool
):
    page = await visit(studio.address("#/agents/studio/chat"), view=view, dark=dark)
    await page.get_by_role("textbox", name="Message").fill("hello")
    await press(page, "Enter")
    await expect(page.get_by_role("log").get_by_text("Message 1")).to_be_visible()
    await go(page, "#/wire")
    await exchanges(page).filter(has_text="SendStreamingMessage").get_by_role("link").click()
    await detail(page).get_by_role("list", name="Events").get_by_role("button").first.click()
    for tab in ("As it went", "Every version", "To copy"):
        with subtests.test(tab):
            await page.get_by_role("tab", name=tab).click()
            await expect(page.get_by_role("tabpanel").get_by_role("button", name="Copy").last).to_be_visible()
            assert await axe(page) == []
            assert await sideways(page) == []
