"""A task: its timeline, what it was after any of its events, and what can be done with it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console.browser import DESKTOP, PHONE, View
from console.driving import axe, press, sideways, tab_to
from console.hostile import DATA, LARGE, NAMES, TEXTS
from console.sending import send, state_of
from console.serving import AGENTS, ServedConsole
from console.stored_tasks import TimedEvent, add_task, chunk_event, status_event, task_json
from console.watching import Watch
from playwright.async_api import Locator, Page, expect
from support.http_server import Answer
from support.webhook_receiver import WebhookReceiver

from dragoman import Client
from dragoman.engine.ports.store import Note

pytestmark = pytest.mark.console

FIRST_MS = 1_800_000_000_000  # 2027-01-15T08:00:00Z
BIG = 2**60 + 1
KEEP = ("--limits-compact", "0", "--limits-keep", "0")


def events(page: Page) -> Locator:
    return page.get_by_role("grid", name="Events")


def event_rows(page: Page) -> Locator:
    return events(page).get_by_role("row")


def panel(page: Page) -> Locator:
    return page.get_by_role("tabpanel")


def slider(page: Page) -> Locator:
    return page.get_by_role("slider", name="Event")


# -- the timeline of a task whose times are known ----------------------------------------------------------------------


def answer_note(generation: int, text: str) -> Note:
    message = {"messageId": f"a-{generation}", "role": "ROLE_USER", "parts": [{"text": text}]}
    return Note(generation, "answer", json.dumps(message).encode())


@pytest.fixture
def story(tmp_path: Path) -> str:
    """The store of a task in two runs, with a question between them, twenty chunks, and a pause of a minute."""
    task = "story"
    question = status_event(FIRST_MS + 300, task, "INPUT_REQUIRED", "How many days?")
    written = [
        TimedEvent(FIRST_MS, {"task": task_json(task, "SUBMITTED", FIRST_MS, "Plan a trip")}),
        status_event(FIRST_MS + 100, task, "WORKING", "thinking"),
        question,
        status_event(FIRST_MS + 3_600_300, task, "WORKING"),
        *(chunk_event(FIRST_MS + 3_600_400 + n * 10, task, f"day{n} ", append=n > 0) for n in range(20)),
        status_event(FIRST_MS + 3_661_000, task, "COMPLETED", "bon voyage"),
    ]
    days = "".join(f"day{n} " for n in range(20))
    data = {"artifactId": "numbers", "parts": [{"data": {"big": BIG}}]}
    snapshot = task_json(
        task, "COMPLETED", FIRST_MS + 3_661_000, "Plan a trip",
        artifacts=[{"artifactId": "answer", "parts": [{"text": days}]}, data],
    )  # fmt: skip
    snapshot["history"].append(question.body["statusUpdate"]["status"]["message"])
    notes = [Note(3, "ask", b'{"question":"How many days?"}'), answer_note(4, "twenty")]
    return add_task(tmp_path / "story.db", task, snapshot, written, notes)


@pytest.fixture
def story_server(serve: Any, story: str) -> ServedConsole:
    """A server on that store."""
    return serve(AGENTS, *KEEP, "--store", story)


async def test_a_timeline_has_runs_gaps_folded_chunks_and_notes(visit: Any, story_server: ServedConsole):
    page = await visit(story_server.address("#/tasks/story"))
    texts = [
        re.compile("#.*Time.*Since last.*Event.*State.*Content.*Size"),
        re.compile("Run 1.*300 ms.*3 events.*2027-01-15 08:00:00.000.*input required"),
        re.compile("1.*08:00:00.000.*Task.*submitted.*Plan a trip"),
        re.compile("2.*08:00:00.100.*100 ms.*Status.*working.*thinking"),
        re.compile("3.*08:00:00.300.*200 ms.*Status.*input required.*How many days"),
        re.compile("Question.*note.*How many days"),
        re.compile("waited 1 h 0 min for an answer"),
        re.compile("Run 2.*1 min 0 s.*22 events.*09:00:00.300.*completed"),
        re.compile("Answer.*note.*twenty"),
        re.compile("4.*09:00:00.300.*Status.*working"),
        re.compile("5.24.*09:00:00.400.*20 chunks.*190 ms.*day0"),
        re.compile("1 min 0 s without events"),
        re.compile("25.*09:01:01.000.*Status.*completed.*bon voyage"),
    ]
    await expect(event_rows(page)).to_have_text(texts)
    await expect(page.get_by_role("img", name="25 events over time, 2 gaps")).to_be_visible()
    chunks = page.get_by_role("button", name=re.compile("20 chunks"))
    await chunks.click()
    await expect(events(page)).to_have_attribute("aria-rowcount", "33")
    await expect(chunks).to_have_attribute("aria-expanded", "true")
    await page.get_by_role("button", name="Collapse runs").click()
    await expect(event_rows(page)).to_have_text([texts[0], texts[1], texts[6], texts[7]])
    await page.get_by_role("button", name="Expand runs").click()
    await chunks.click()
    await expect(event_rows(page)).to_have_text(texts)


async def test_the_slider_shows_the_task_as_of_an_event(
    visit: Any, story_server: ServedConsole, subtests: pytest.Subtests
):
    page = await visit(story_server.address("#/tasks/story"))
    await expect(slider(page)).to_have_attribute("aria-valuetext", re.compile("^event 25 of 25, completed"))
    for at, state, words in (
        (1, "submitted", None),
        (3, "input required", None),
        (4, "working", None),
        (5, "working", "day0"),
        (15, "working", " ".join(f"day{n}" for n in range(11))),
        (24, "working", " ".join(f"day{n}" for n in range(20))),
        (25, "completed", " ".join(f"day{n}" for n in range(20))),
    ):
        with subtests.test(at=at):
            await page.get_by_role("tab", name="Artifacts").click()
            await slider(page).fill(str(at))
            await expect(page).to_have_url(re.compile(f"at={at}(&|$)"))
            await expect(page.get_by_text(f"As it was after event {at} of 25")).to_be_visible()
            await expect(slider(page)).to_have_attribute("aria-valuetext", re.compile(f"^event {at} of 25, {state}"))
            if words is None:
                await expect(panel(page).get_by_role("heading", name="No artifacts")).to_be_visible()
            else:
                await expect(panel(page).get_by_text(words, exact=True)).to_be_visible()
            await page.get_by_role("tab", name="JSON").click()
            named = {"submitted": "SUBMITTED", "input required": "INPUT_REQUIRED", "working": "WORKING"}
            await expect(panel(page).get_by_text(f'"TASK_STATE_{named.get(state, "COMPLETED")}"')).to_be_visible()
            await page.get_by_role("tab", name=re.compile("^History")).click()
            await expect(panel(page).get_by_text("Plan a trip", exact=True)).to_be_visible()
            await expect(panel(page).get_by_text("How many days?", exact=True)).to_have_count(1 if at >= 3 else 0)
    await page.get_by_role("button", name="Newest").click()
    await expect(page).not_to_have_url(re.compile("at="))
    await expect(page.get_by_text("As it was after")).to_have_count(0)


async def test_a_moment_has_an_address_and_its_event_is_shown_whole(visit: Any, story_server: ServedConsole):
    page = await visit(story_server.address("#/tasks/story?at=7&tab=artifacts"))
    await expect(panel(page).get_by_text("day0 day1 day2", exact=True)).to_be_visible()
    await page.get_by_role("tab", name="Timeline").click()
    await expect(page).to_have_url(re.compile("at=7$"))
    detail = page.get_by_role("complementary", name="Event 7")
    await expect(detail.get_by_text("Artifact", exact=False).first).to_be_visible()
    await expect(detail.get_by_text('"day2 "')).to_be_visible()
    # The chunk is folded: its row is the one that is marked.
    await expect(events(page).locator("[aria-current=true]")).to_contain_text("20 chunks")
    await event_rows(page).filter(has_text="How many days?").first.click()
    await expect(page).to_have_url(re.compile("at=3$"))
    await expect(page.get_by_role("complementary", name="Event 3").get_by_text('"How many days?"')).to_be_visible()
    for address, there in (("at=0", 1), ("at=999", 25)):
        await page.goto(story_server.address(f"#/tasks/story?tab=history&{address}"))
        await expect(page.get_by_text(f"As it was after event {there} of 25")).to_be_visible()


async def test_a_task_is_played_and_stepped_through(visit: Any, story_server: ServedConsole):
    page = await visit(story_server.address("#/tasks/story?at=23"))
    await expect(slider(page)).to_have_value("23")
    await page.get_by_role("button", name="Previous event").click()
    await expect(slider(page)).to_have_value("22")
    await page.get_by_role("button", name="Next event").click()
    await page.get_by_role("button", name="Play").click()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    await expect(slider(page)).to_have_value("25")
    await expect(page.get_by_role("button", name="Play")).to_be_visible()
    await page.get_by_role("button", name="First event").click()
    await expect(slider(page)).to_have_value("1")
    await expect(page.get_by_role("button", name="Previous event")).to_be_disabled()
    await page.get_by_role("button", name="Last event").click()
    await expect(slider(page)).to_have_value("25")
    await page.get_by_role("img", name=re.compile("25 events over time")).click(position={"x": 2, "y": 20})
    await expect(slider(page)).to_have_value("1")


async def test_the_timeline_is_led_by_keys(visit: Any, story_server: ServedConsole):
    page = await visit(story_server.address("#/tasks/story"))
    await expect(event_rows(page)).to_have_count(13)
    await tab_to(page, events(page))
    await press(page, "ArrowDown", "ArrowLeft")
    await expect(page.get_by_role("button", name="Run 1")).to_have_attribute("aria-expanded", "false")
    await press(page, "ArrowRight")
    await expect(page.get_by_role("button", name="Run 1")).to_have_attribute("aria-expanded", "true")
    await press(page, "ArrowDown", "Enter")
    await expect(slider(page)).to_have_value("1")
    await press(page, "End", "Enter")
    await expect(slider(page)).to_have_value("25")
    await expect(events(page)).to_be_focused()
    await tab_to(page, slider(page), back=True)
    await press(page, "Home", "ArrowRight", "ArrowRight")
    await expect(slider(page)).to_have_value("3")
    await tab_to(page, page.get_by_role("tab", name="Timeline"))
    await press(page, "ArrowRight")
    await expect(panel(page).get_by_text("How many days?", exact=True)).to_be_visible()
    await press(page, "End")
    await expect(page).to_have_url(re.compile("tab=json"))
    await expect(panel(page).get_by_text('"TASK_STATE_INPUT_REQUIRED"')).to_be_visible()


async def test_json_is_shown_and_downloaded_with_every_number_as_it_is(visit: Any, story_server: ServedConsole):
    page = await visit(story_server.address("#/tasks/story?tab=json"))
    await expect(panel(page).get_by_text(str(BIG))).to_be_visible()
    async with page.expect_download() as download:
        await page.get_by_role("button", name="Download JSON").click()
    file = await download.value
    assert file.suggested_filename == "task-story.json"
    task = json.loads(await asyncio.to_thread(Path(await file.path()).read_text))
    assert task["artifacts"][1]["parts"] == [{"data": {"big": BIG}}]
    assert task["history"][0]["parts"] == [{"text": "Plan a trip"}]


# -- a task that goes on -----------------------------------------------------------------------------------------------


async def test_a_task_is_followed_while_it_goes_on(visit: Any, studio: ServedConsole, client: Client):
    task = await send(client, tool="paced", arguments={"total": 3}, wait=False)
    page = await visit(studio.address(f"#/tasks/{task.id}"))
    await expect(state_of(page)).to_have_text("working")
    await expect(events(page).get_by_text("waiting for the first message")).to_be_visible()
    await send(client, "one", task=task, wait=False)
    await expect(events(page).get_by_text("after one")).to_be_visible()
    await page.get_by_role("tab", name="Artifacts").click()
    await expect(panel(page).get_by_text("one")).to_be_visible()
    await send(client, "two", task=task, wait=False)
    await expect(panel(page).get_by_text("two")).to_be_visible()
    # Who looks at the past stays there.
    await page.get_by_role("tab", name="Timeline").click()
    await slider(page).fill("2")
    await send(client, "three", task=task, wait=False)
    await expect(state_of(page)).to_have_text("completed")
    await expect(slider(page)).to_have_value("2")
    await expect(page).to_have_url(re.compile("at=2"))


async def test_questions_are_answered_with_a_form_of_the_wanted_type(visit: Any, studio: ServedConsole, client: Client):
    task = await send(client, tool="interview")
    page = await visit(studio.address(f"#/tasks/{task.id}"))
    question = page.get_by_role("region", name="Answer the question")
    answer = question.get_by_role("button", name="Send answer")
    await expect(question.get_by_text("How many people?")).to_be_visible()
    number = question.get_by_label("Answer", exact=True)
    await number.fill("many")
    await answer.click()
    await expect(number).to_have_attribute("aria-invalid", "true")
    await number.fill("4")
    await press(page, "Enter")
    await expect(question.get_by_text("Vegan?")).to_be_visible()
    await question.get_by_role("button", name="Yes").click()
    await expect(question.get_by_text("Where would you like to sit?")).to_be_visible()
    await question.get_by_label("on the roof").check()
    await answer.click()
    await expect(question.get_by_text("What is your name?")).to_be_visible()
    await question.get_by_role("textbox", name="Answer in words").fill("Ada")
    await press(page, "Enter")
    await expect(question.get_by_text("Where do you live?")).to_be_visible()
    await question.get_by_label("street").fill("Rua Nova 1")
    await question.get_by_label("city").fill("Porto")
    await answer.click()
    await expect(state_of(page)).to_have_text("completed")
    await expect(question).to_have_count(0)
    await page.get_by_role("tab", name="Artifacts").click()
    for line in ("4 people", "vegan: True", "on the roof", "Ada", "Rua Nova 1, Porto, PT"):
        await expect(panel(page).get_by_text(line)).to_be_visible()
    await page.get_by_role("tab", name="Timeline").click()
    await page.get_by_role("button", name="Collapse runs").click()
    await expect(page.get_by_role("button", name="Run 6")).to_be_visible()


async def test_a_sign_in_elsewhere_has_a_link_and_no_form(visit: Any, studio: ServedConsole, client: Client):
    task = await send(client, tool="calendar")
    page = await visit(studio.address(f"#/tasks/{task.id}"))
    asked = page.get_by_role("region", name="Sign in")
    link = asked.get_by_role("link", name="Open login.example")
    await expect(link).to_have_attribute("href", re.compile(r"https://login\.example/\?state="))
    await expect(asked.get_by_text("The task continues by itself after the sign-in.")).to_be_visible()
    await expect(asked.get_by_role("textbox")).to_have_count(0)
    await expect(asked.get_by_role("button")).to_have_count(0)


async def test_a_task_leads_to_its_chat_and_its_agent(visit: Any, studio: ServedConsole, client: Client):
    task = await send(client, "hello from afar")
    page = await visit(studio.address(f"#/tasks/{task.id}"))
    await page.get_by_role("link", name="Open in chat").click()
    await expect(page.get_by_text("hello from afar").first).to_be_visible()
    await expect(page.get_by_text("Message 1")).to_be_visible()
    await page.go_back()
    await page.get_by_role("main").get_by_role("link", name="studio", exact=True).click()
    await expect(page).to_have_url(re.compile("#/agents/studio$"))


async def test_a_task_has_the_trace_of_its_request(visit: Any, studio: ServedConsole):
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    async with Client(f"{studio.url}/agents/studio", headers=headers) as client:
        task = await send(client, "traced")
    page = await visit(studio.address(f"#/tasks/{task.id}"))
    await expect(page.get_by_text(trace, exact=True)).to_be_visible()
    await expect(page.get_by_text(task.id, exact=True)).to_be_visible()


async def test_there_is_no_such_task(visit: Any, watch: Watch, studio: ServedConsole):
    watch.allow("status of 404")
    page = await visit(studio.address("#/tasks/nothing"))
    await expect(page.get_by_role("heading", name="There is no such task")).to_be_visible()
    await page.get_by_role("link", name="All tasks").click()
    await expect(page.get_by_role("heading", level=1, name="Tasks")).to_be_visible()


async def test_a_compacted_task_says_so_and_has_its_result(visit: Any, serve: Any):
    server = serve(AGENTS, "--limits-compact", "0.001")
    async with Client(f"{server.url}/agents/studio") as client:
        task = await send(client, tool="report", arguments={"title": "Autumn"})
    server.stop()
    server.restart()  # which compacts at once, not only every minute
    page = await visit(server.address(f"#/tasks/{task.id}"))
    await page.evaluate(
        """async (id) => {
          for (;;) {
            const { oldest, newest } = await (await fetch(`console/api/tasks/${id}`)).json();
            if (oldest === newest) return;
          }
        }""",
        task.id,
    )
    await page.reload()
    await expect(events(page).get_by_text(re.compile(r"Events 1 to \d+ are no longer stored"))).to_be_visible()
    await expect(slider(page)).to_be_disabled()
    await page.get_by_role("tab", name="Artifacts").click()
    await expect(panel(page).get_by_role("heading", name="Autumn")).to_be_visible()
    assert await axe(page) == []


# -- webhooks ----------------------------------------------------------------------------------------------------------


# What is refused is not sent again for an hour, unless somebody asks.
REFUSED = {"Retry-After": "3600"}


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


async def test_a_webhook_is_added_delivered_retried_and_deleted(visit: Any, serve: Any, receiver: WebhookReceiver):
    server = serve(AGENTS, "--push-allow", "127.0.0.1")
    async with Client(f"{server.url}/agents/studio") as client:
        task = await send(client, tool="paced", arguments={"total": 9}, wait=False)
        page = await visit(server.address(f"#/tasks/{task.id}?tab=webhooks"))
        await expect(page.get_by_role("heading", name="No webhooks")).to_be_visible()
        await page.get_by_role("button", name="Add a webhook").click()
        dialog = page.get_by_role("dialog", name="Add a webhook")
        await dialog.get_by_label("Address").fill("http://127.0.0.2:9/")
        await dialog.get_by_role("button", name="Add", exact=True).click()
        await expect(dialog.get_by_role("alert")).to_be_visible()  # the address is not allowed
        await dialog.get_by_label("Address").fill(f"{receiver.url}?key=k3y-of-hook")
        await dialog.get_by_label("Token").fill("s3cret")
        await press(page, "Enter")
        await expect(dialog).to_have_count(0)

        await send(client, "one", task=task, wait=False)
        first = await asyncio.to_thread(receiver.wait, 1)
        assert first[0].headers["x-a2a-notification-token"] == "s3cret"
        table = page.get_by_role("table")
        await expect(table.get_by_text("delivering")).to_be_visible()
        for secret in ("s3cret", "k3y-of-hook"):
            assert secret not in await page.content()

        receiver.answer = Answer(503, headers=REFUSED)
        received = len(receiver.requests)
        await send(client, "two", task=task, wait=False)
        await asyncio.to_thread(receiver.wait, received + 1)
        await expect(table.get_by_text("HTTP 503")).to_be_visible()
        await expect(table.get_by_text("failing since")).to_be_visible()
        receiver.answer = 200
        await page.get_by_role("button", name="Retry now").click()
        await asyncio.to_thread(receiver.wait, received + 2)
        await expect(page.get_by_role("button", name="Retry now")).to_have_count(0)
        await expect(table.get_by_text("HTTP 503")).to_have_count(0)
        assert re.search(rf"webhooks-retried task={task.id} webhook=\S+ count=1 by=console-token", server.output)

        await send(client, "stop", task=task)
        await expect(table.get_by_text("delivered", exact=True)).to_be_visible()
        await expect(table.get_by_text(re.compile(r"^(\d+) of \1$"))).to_be_visible()
        assert receiver.requests[-1].json["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        await page.get_by_role("button", name="Delete").click()
        await page.get_by_role("dialog").get_by_role("button", name="Keep").click()
        await expect(table).to_be_visible()
        await page.get_by_role("button", name="Delete").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page.get_by_role("heading", name="No webhooks")).to_be_visible()
        assert await client.list_push_configs(task) == ()


# -- every tab ---------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(120)
@pytest.mark.parametrize("dark", [pytest.param(False, id="light"), pytest.param(True, id="dark")])
@pytest.mark.parametrize("view", [pytest.param(DESKTOP, id="desktop"), pytest.param(PHONE, id="phone")])
async def test_every_tab_is_accessible_and_fits(
    visit: Any, serve: Any, story: str, subtests: pytest.Subtests, receiver: WebhookReceiver, view: View, dark: bool
):
    server = serve(AGENTS, *KEEP, "--store", story, "--push-allow", "127.0.0.1")
    async with Client(f"{server.url}/agents/studio") as client:
        waiting = await send(client, tool="interview")
        receiver.answer = Answer(500, headers=REFUSED)
        working = await send(client, tool="paced", push=receiver.url, wait=False)
        await asyncio.to_thread(receiver.wait, 1)
    page = await visit(server.address("#/tasks/story"), view=view, dark=dark)
    for place, there in (
        ("story", "bon voyage"),
        ("story?at=3", "Event 3"),
        ("story?at=7&tab=history", "Plan a trip"),
        ("story?at=7&tab=artifacts", "day0 day1 day2"),
        ("story?tab=json", "TASK_STATE_COMPLETED"),
        ("story?tab=webhooks", "No webhooks"),
        (f"{waiting.id}", "How many people?"),
        (f"{working.id}?tab=webhooks", "HTTP 500"),
    ):
        with subtests.test(place):
            await page.evaluate("(place) => { location.hash = place }", f"#/tasks/{place}")
            await expect(page.get_by_role("main").get_by_text(there).last).to_be_attached()
            assert await axe(page) == []
            assert await sideways(page) == []
    await page.get_by_role("button", name="Cancel task").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await axe(page) == []
    await press(page, "Escape")
    await expect(page.get_by_role("button", name="Cancel task")).to_be_focused()
    await press(page, "Enter")
    await page.get_by_role("button", name="Cancel the task").click()
    await expect(state_of(page)).to_have_text("canceled")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("view", [pytest.param(DESKTOP, id="desktop"), pytest.param(PHONE, id="phone")])
async def test_hostile_words_are_data_in_every_tab(
    visit: Any, hostile: ServedConsole, subtests: pytest.Subtests, view: View
):
    page = await visit(hostile.address("#/tasks"), view=view)
    async with Client(f"{hostile.url}/agents/hostile") as client:
        calls = [("artifact", "name", key) for key in NAMES]
        calls += [("data", "name", key) for key in DATA]
        calls += [(tool, "text", key) for key in TEXTS.keys() - LARGE for tool in ("say", "ask")]
        for tool, argument, key in calls:
            with subtests.test(key, tool=tool):
                task = await send(client, tool=tool, arguments={argument: key})
                for tab in ("history", "artifacts", "json"):
                    await page.evaluate("(place) => { location.hash = place }", f"#/tasks/{task.id}?tab={tab}&at=2")
                    await expect(page.get_by_role("tab", selected=True)).to_have_id(f"tab-task-{tab}")
                    await expect(page.get_by_text("As it was after event 2")).to_be_visible()
                    assert await sideways(page) == []
                assert await page.evaluate("() => ({}).polluted") is None
