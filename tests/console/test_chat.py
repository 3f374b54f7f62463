"""The chat of the console: answers that grow, questions as forms, and conversations that are taken up again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from console.browser import DESKTOP, PHONE, View
from console.driving import axe, focused, press, sideways, tab_to
from console.samples import png
from console.serving import GUARDED, HERE, ServedConsole
from console.talking import (
    HAS_CONTEXT,
    choose,
    conversations,
    field,
    open_chat,
    outside_of,
    say,
    see_state,
    turn,
)
from console.watching import Watch
from playwright.async_api import Page, expect

PARLOR = f"{HERE / 'parlor.py'}:server"


@pytest.fixture(scope="module")
def parlor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedConsole]:
    """The agents of `parlor.py`."""
    server = ServedConsole(tmp_path_factory.mktemp("parlor"), PARLOR)
    yield server
    server.stop()


# -- the main way ------------------------------------------------------------------------------------------------------


async def test_a_conversation_has_answers_a_question_progress_and_files(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio)
    await expect(field(page)).to_be_focused()
    await say(page, "hello")
    answer = await see_state(page)
    await expect(answer.get_by_text("Message 1: hello")).to_be_visible()
    await expect(answer.locator("strong")).to_have_text("hello")
    await expect(page).to_have_url(HAS_CONTEXT)

    await choose(page, "interview")
    await say(page, "begin")
    await see_state(page, "input required")
    await turn(page).get_by_role("textbox", name="Answer").fill("several")
    await turn(page).get_by_role("button", name="Send answer").click()
    await expect(turn(page).get_by_role("textbox", name="Answer")).to_be_focused()
    await press(page, "Control+a", "4", "Enter")
    await turn(page).get_by_role("button", name="Yes", exact=True).click()
    await turn(page).get_by_role("radio", name="on the roof").check()
    await turn(page).get_by_role("button", name="Send answer").click()
    await expect(turn(page).get_by_text("What is your name?")).to_be_visible()
    await say(page, "Ann")
    await turn(page).get_by_role("textbox", name="street").fill("Rua Augusta 1")
    await turn(page).get_by_role("textbox", name="city").fill("Lisbon")
    await turn(page).get_by_role("button", name="Send answer").click()
    answer = await see_state(page)
    await expect(answer).to_contain_text("4 people")
    await expect(answer).to_contain_text("vegan: True")
    await expect(answer).to_contain_text("Rua Augusta 1, Lisbon, PT")

    await choose(page, "paced")
    await say(page, "begin")
    await expect(turn(page).get_by_role("progressbar", name="waiting for the first message")).to_be_visible()
    async with outside_of(page, studio, "studio") as whisper:
        await whisper("one")
        await expect(turn(page).get_by_role("progressbar", name="after one")).to_have_attribute("value", "1")
        await expect(turn(page).get_by_text("1 of 3")).to_be_visible()
        await expect(turn(page).get_by_role("listitem")).to_have_text(["one"])
    await page.get_by_role("button", name="Cancel").click()
    await see_state(page, "canceled")
    await expect(turn(page).get_by_role("progressbar")).to_have_count(0)

    await choose(page, "receive")
    async with page.expect_file_chooser() as chooser:
        await page.get_by_role("button", name="Add files").click()
    picture = png(60, 40)
    await (await chooser.value).set_files([{"name": "chart.png", "mimeType": "image/png", "buffer": picture}])
    await expect(page.get_by_role("list", name="Files to send")).to_contain_text("chart.png")
    await field(page).press("Enter")
    answer = await see_state(page)
    await expect(answer.get_by_text(f"chart.png image/png {len(picture)} bytes")).to_be_visible()
    await expect(answer.get_by_role("img", name="chart.png")).to_have_count(2)
    async with page.expect_download() as download:
        await answer.get_by_role("button", name="Download chart.png").last.click()
    assert (await (await download.value).path()).read_bytes() == picture
    assert await sideways(page) == []


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.console
async def test_markdown_becomes_elements_and_its_html_stays_text(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio)
    await say(page, "markdown")
    answer = await see_state(page)
    await expect(answer.get_by_role("heading", name="A heading")).to_be_visible()
    await expect(answer.get_by_role("link", name="link", exact=True)).to_have_attribute(
        "href", "https://studio.example/page"
    )
    bare = answer.get_by_role("link", name="https://studio.example/bare", exact=True)
    await expect(bare).to_have_attribute("rel", re.compile("noopener.*noreferrer"))
    await expect(answer.get_by_role("checkbox", name="done", exact=True)).to_be_checked()
    await expect(answer.get_by_role("checkbox", name="to do", exact=True)).not_to_be_checked()
    await expect(answer.get_by_role("table").get_by_role("row")).to_have_count(3)
    await expect(answer.get_by_role("columnheader")).to_have_text(["city", "days", "cost"])
    await expect(answer.locator("blockquote blockquote")).to_have_text("within a quote")
    await expect(answer.locator("ul ul ol li")).to_have_text(["deeper", "and deeper"])
    await expect(answer.get_by_text("<b>not bold</b>")).to_be_visible()
    await expect(answer.get_by_role("link", name="a cat")).to_be_visible()
    await expect(answer.get_by_role("img")).to_have_count(0)
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await answer.get_by_role("button", name="Copy").click()
    await expect(answer.get_by_role("button", name="Copied")).to_be_visible()
    copied = await page.evaluate("() => navigator.clipboard.readText()")
    assert copied == 'def greet(name: str) -> str:\n    return f"Hello, {name}! <b>not bold</b>"'


@pytest.mark.console
async def test_an_answer_is_read_while_it_grows(visit: Any, parlor: ServedConsole):
    page = await open_chat(visit, parlor, "parlor")
    await say(page, "A **bo")
    await expect(turn(page).get_by_text("A **bo").last).to_be_visible()
    await expect(page.get_by_role("log")).to_have_attribute("aria-busy", "true")
    async with outside_of(page, parlor, "parlor") as whisper:
        await whisper("ld** word\n\n```\nlet x")
        await expect(turn(page).locator("strong")).to_have_text("bold")
        await expect(turn(page).locator("pre")).to_have_text("let x")
        await whisper(" = 1;\n```\n\n| a |\n|---|\n| 1 |\n")
        await expect(turn(page).locator("pre")).to_have_text("let x = 1;")
        await expect(turn(page).get_by_role("cell")).to_have_text(["1"])
        await expect(turn(page).locator("strong")).to_have_text("bold")
        await whisper("stop")
    await see_state(page)
    await expect(page.get_by_role("log")).to_have_attribute("aria-busy", "false")


@pytest.mark.console
async def test_new_text_does_not_scroll_a_reader_who_reads_above(visit: Any, parlor: ServedConsole):
    page = await open_chat(visit, parlor, "parlor")
    await say(page, "\n\n".join(f"paragraph {number}" for number in range(60)))
    await expect(turn(page).get_by_text("paragraph 59").last).to_be_in_viewport()
    log = page.get_by_role("log")
    async with outside_of(page, parlor, "parlor") as whisper:
        await log.focus()
        await press(page, "Home")
        await expect(page.get_by_role("button", name="Jump to newest")).to_be_visible()
        await expect(log).to_have_js_property("scrollTop", 0)
        await whisper("\n\nthe newest words")
        await expect(turn(page).get_by_text("the newest words")).to_have_count(1)
        await expect(log).to_have_js_property("scrollTop", 0)
        await page.get_by_role("button", name="Jump to newest").click()
        await expect(turn(page).get_by_text("the newest words")).to_be_in_viewport()
        await whisper("\n\neven newer ones")
        await expect(turn(page).get_by_text("even newer ones")).to_be_in_viewport()
        await whisper("stop")
    await see_state(page)


@pytest.mark.console
async def test_artifacts_data_and_closing_words_stand_beside_the_answer(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio, skill="report")
    await say(page, "Autumn")
    answer = await see_state(page)
    await expect(answer.get_by_role("heading", name="figures")).to_be_visible()
    await expect(answer.get_by_role("heading", name="draft")).to_be_visible()
    await expect(answer.get_by_text("first draft")).to_be_visible()
    await expect(answer.get_by_role("heading", name="Autumn")).to_be_visible()
    await expect(answer.get_by_text("The next report comes on Friday.")).to_be_visible()
    await expect(answer).to_contain_text('"total": 12')
    await expect(answer.get_by_role("progressbar")).to_have_count(0)


@pytest.mark.console
async def test_an_artifact_that_is_replaced_is_seen_once(visit: Any, parlor: ServedConsole):
    page = await open_chat(visit, parlor, "parlor", skill="drafts")
    await say(page, "write")
    answer = await see_state(page)
    await expect(answer.get_by_text("The second draft")).to_be_visible()
    await expect(answer.get_by_text("The first draft")).to_have_count(0)
    await expect(answer).to_contain_text('"words": 3')


@pytest.mark.console
async def test_a_message_without_a_task_is_an_answer_too(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio, skill="ping")
    await say(page, "ping")
    answer = await see_state(page)
    await expect(answer.get_by_text("pong", exact=True)).to_be_visible()
    await expect(answer.get_by_role("link", name="Task", exact=True)).to_have_count(0)
    await answer.get_by_role("link", name="Wire").click()
    await expect(page).to_have_url(re.compile(r"#/wire/\d+"))


@pytest.mark.console
async def test_a_turn_shows_why_its_task_failed(visit: Any, studio: ServedConsole, parlor: ServedConsole):
    page = await open_chat(visit, studio, skill="fail")
    await say(page, "there are **nine** doors")
    answer = await see_state(page, "failed")
    await expect(answer.locator(".problem")).to_have_text("there are nine doors")
    await choose(page, "broken")
    await say(page, "go")
    answer = await see_state(page, "failed")
    await expect(answer).not_to_contain_text("1234")
    await choose(page, "refuse")
    await say(page, "circle")
    await expect(turn(page).get_by_text("there is no circle")).to_be_visible()
    page = await open_chat(visit, parlor, "parlor", skill="reject")
    await say(page, "chess")
    answer = await see_state(page, "rejected")
    await expect(answer.locator(".problem")).to_have_text("I only know parlor games.")


@pytest.mark.console
async def test_a_running_task_can_be_canceled(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio, skill="wait")
    await say(page, "go")
    await expect(turn(page).get_by_text("begun")).to_be_visible()
    await expect(turn(page).get_by_role("progressbar", name="working until you cancel")).not_to_have_attribute(
        "value", re.compile("")
    )
    await page.get_by_role("button", name="Cancel").click()
    await see_state(page, "canceled")
    await expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    await expect(turn(page).get_by_text("begun")).to_be_visible()


# -- questions ---------------------------------------------------------------------------------------------------------


async def asked(page: Page, kind: str) -> None:
    await choose(page, "ask")
    await say(page, kind)
    await see_state(page, "input required")


async def see_answer(page: Page, text: str) -> None:
    answer = await see_state(page)
    await expect(answer.get_by_text(text, exact=True).last).to_be_visible()


@pytest.mark.console
async def test_a_question_is_a_form_of_the_wanted_type(visit: Any, parlor: ServedConsole):
    page = await open_chat(visit, parlor, "parlor")
    send = page.get_by_role("button", name="Send answer")

    await asked(page, "whole")
    whole = turn(page).get_by_role("textbox", name="Answer")
    await whole.fill("2.5")
    await send.click()
    await expect(whole).to_be_focused()
    await expect(whole).to_have_attribute("aria-invalid", "true")
    await whole.fill("12")
    await whole.press("Enter")
    await see_answer(page, "12")

    await asked(page, "number")
    await turn(page).get_by_role("textbox", name="Answer").fill("-2.5")
    await send.click()
    await see_answer(page, "-2.5")

    await asked(page, "yes")
    await turn(page).get_by_role("button", name="No", exact=True).click()
    await see_answer(page, "False")

    await asked(page, "seat")
    await expect(turn(page).locator("strong")).to_have_text("seat")
    await expect(send).to_be_disabled()
    await turn(page).get_by_role("radio", name="aisle").check()
    await send.click()
    await see_answer(page, "'aisle'")

    await asked(page, "city")
    await turn(page).get_by_role("combobox", name="Answer").select_option("Faro")
    await send.click()
    await see_answer(page, "<City.FARO: 'Faro'>")

    await asked(page, "day")
    await turn(page).get_by_label("Answer").first.fill("2026-02-28")
    await send.click()
    await see_answer(page, "datetime.date(2026, 2, 28)")

    await asked(page, "names")
    await turn(page).get_by_role("button", name=re.compile("^Add")).click()
    await turn(page).get_by_role("textbox").first.fill("Ann")
    await send.click()
    await see_answer(page, "['Ann']")

    await asked(page, "traveller")
    await turn(page).get_by_role("textbox", name="name").fill("Bo")
    await send.click()
    await expect(turn(page).get_by_role("textbox", name="age")).to_be_focused()
    await turn(page).get_by_role("textbox", name="age").fill("41")
    await turn(page).get_by_role("combobox", name="seat").select_option("window")
    await turn(page).get_by_role("checkbox", name="vegan").check()
    await send.click()
    await see_answer(page, "Traveller(name='Bo', age=41, seat='window', vegan=True)")

    await asked(page, "text")
    await expect(send).to_have_count(0)
    await expect(page.get_by_role("textbox", name="Answer")).to_be_visible()
    await say(page, "any words")
    await see_answer(page, "'any words'")


@pytest.mark.console
async def test_a_question_can_be_answered_in_words_and_is_asked_again_when_they_do_not_fit(
    visit: Any, parlor: ServedConsole
):
    page = await open_chat(visit, parlor, "parlor")
    await asked(page, "whole")
    await say(page, "a dozen")
    await expect(turn(page).get_by_text(re.compile("Please answer with"))).to_be_visible()
    await say(page, "12")
    await see_answer(page, "12")
    await expect(turn(page).get_by_text("a dozen", exact=True)).to_be_visible()


@pytest.mark.console
async def test_a_form_of_a_tool_is_filled_in_or_declined(visit: Any, parlor: ServedConsole):
    page = await open_chat(visit, parlor, "tool")
    await say(page, "book a room")
    await see_state(page, "input required")
    await expect(turn(page).get_by_text("Who stays?").first).to_be_visible()
    await expect(turn(page).get_by_text("requestedSchema")).to_have_count(0)
    await expect(turn(page).get_by_role("textbox", name="nights")).to_have_value("2")
    await expect(turn(page).get_by_role("checkbox", name="breakfast")).to_be_checked()
    await turn(page).get_by_role("textbox", name="email").fill("nobody")
    await turn(page).get_by_role("combobox", name="room").select_option("double")
    await turn(page).get_by_role("button", name="Send answer").click()
    await expect(turn(page).get_by_role("textbox", name="email")).to_be_focused()
    await turn(page).get_by_role("textbox", name="email").fill("ann@mail.example")
    await turn(page).get_by_role("button", name="Send answer").click()
    answer = await see_state(page)
    data = "{'nights': 2, 'breakfast': True, 'email': 'ann@mail.example', 'room': 'd'}"
    await expect(answer.get_by_text(re.compile(re.escape(data)))).to_be_visible()
    await say(page, "book a room")
    await turn(page).get_by_role("button", name="Decline").click()
    answer = await see_state(page)
    await expect(answer.get_by_text(re.compile(re.escape("{'action': 'decline'}")))).to_be_visible()


@pytest.mark.console
async def test_a_sign_in_elsewhere_is_a_link_and_nothing_here_counts_as_one(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio, skill="calendar")
    await say(page, "today")
    await see_state(page, "sign-in required")
    link = turn(page).get_by_role("link", name="Open login.example")
    await expect(link).to_have_attribute("href", re.compile(r"https://login\.example/\?state="))
    await expect(link).to_have_attribute("target", "_blank")
    await expect(turn(page).get_by_text("The task continues by itself after the sign-in.")).to_be_visible()
    await expect(turn(page).get_by_role("button", name="I have signed in")).to_have_count(0)
    async with outside_of(page, studio, "studio") as whisper:
        await whisper("Bea")
    await say(page, "I have signed in")
    await see_state(page, "sign-in required")


# -- conversations -----------------------------------------------------------------------------------------------------


@pytest.mark.console
async def test_conversations_are_listed_and_taken_up_again(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio, "parrot")
    await say(page, "the first of May")
    await see_state(page, "input required")
    first = page.url
    current = conversations(page).get_by_role("link", name="the first of May")
    await expect(current).to_have_attribute("aria-current", "page")
    await page.get_by_role("link", name="New conversation").click()
    await expect(page.get_by_role("article", name="Turn")).to_have_count(0)
    await say(page, "the second of May")
    await see_state(page, "input required")
    await expect(conversations(page).get_by_role("link")).to_have_count(2)
    await conversations(page).get_by_role("link", name="the first of May").click()
    await expect(page).to_have_url(first)
    await expect(turn(page).get_by_text("the first of May").first).to_be_visible()

    # Another browser, another day.
    other = await visit(studio.address(first[first.index("#") :]))
    await expect(turn(other).get_by_text("Say it again?").first).to_be_visible()
    await say(other, "in June")
    answer = await see_state(other)
    await expect(answer.get_by_text("the first of May, in June")).to_be_visible()
    await expect(conversations(other).get_by_role("link", name="the first of May")).to_contain_text("completed")


@pytest.mark.console
async def test_a_running_task_is_followed_live_in_a_second_window(visit: Any, parlor: ServedConsole):
    page = await open_chat(visit, parlor, "parlor")
    await say(page, "begun,")
    await expect(page).to_have_url(HAS_CONTEXT)
    other = await visit(parlor.address(page.url[page.url.index("#") :]))
    await expect(turn(other).get_by_text("begun,").last).to_be_visible()
    async with outside_of(page, parlor, "parlor") as whisper:
        await whisper(" seen by both,")
        for each in (page, other):
            await expect(turn(each).get_by_text("begun, seen by both,")).to_be_visible()
        await other.get_by_role("button", name="Cancel").click()
    for each in (page, other):
        await see_state(each, "canceled")


@pytest.mark.console
async def test_a_stream_continues_while_another_view_is_open(visit: Any, parlor: ServedConsole):
    page = await open_chat(visit, parlor, "parlor")
    await say(page, "begun,")
    await expect(turn(page).get_by_text("begun,").last).to_be_visible()
    await expect(page).to_have_url(re.compile("/chat/."))  # once the server has said which conversation it is
    address = page.url
    async with outside_of(page, parlor, "parlor") as whisper:
        await press(page, "Escape")
        await page.get_by_role("link", name="Wire", exact=True).first.click()
        await whisper(" gone on,")
        await whisper("stop")
    await page.goto(address)
    answer = await see_state(page)
    await expect(answer.get_by_text("begun, gone on,")).to_be_visible()


@pytest.mark.console
async def test_a_visitor_finds_their_conversations_in_their_browser(visit: Any, studio: ServedConsole):
    page: Page = await visit(f"{studio.url}/#/agents/parrot/chat")
    await say(page, "a visitor's word")
    await see_state(page, "input required")
    await expect(turn(page).get_by_role("link", name="Task", exact=True)).to_have_count(0)
    await page.reload()
    await expect(turn(page).get_by_text("a visitor's word").first).to_be_visible()
    await page.get_by_role("link", name="New conversation").click()
    await conversations(page).get_by_role("link", name="a visitor's word").click()
    await see_state(page, "input required")  # the conversation is there, and what is written is an answer
    await say(page, "again")
    await expect((await see_state(page)).get_by_text("a visitor's word, again")).to_be_visible()
    await page.get_by_role("button", name="Forget these").click()
    await expect(conversations(page).get_by_role("link")).to_have_count(0)


@pytest.mark.console
async def test_a_conversation_that_does_not_exist_says_so(visit: Any, studio: ServedConsole):
    page: Page = await visit(studio.address("#/agents/studio/chat/00000000-0000-0000-0000-000000000000"))
    await expect(page.get_by_text("does not exist any more")).to_be_visible()


# -- before the first word ---------------------------------------------------------------------------------------------


@pytest.mark.console
async def test_the_address_names_a_skill_and_a_text(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio, text="a **text** & more", skill="fail")
    await expect(field(page)).to_have_value("a **text** & more")
    await expect(page.get_by_role("combobox", name="Skill")).to_have_value("fail")
    await expect(page.get_by_role("article", name="Turn")).to_have_count(0)
    await page.get_by_role("button", name="Send").click()
    await expect((await see_state(page, "failed")).locator(".problem")).to_have_text("a text & more")


@pytest.mark.console
async def test_an_example_is_sent_by_a_click(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio)
    await page.get_by_role("list", name="Examples").get_by_role("button", name="hello").click()
    await expect((await see_state(page)).get_by_text("Message 1: hello")).to_be_visible()


@pytest.mark.console
async def test_lines_are_broken_by_shift_and_enter(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio)
    await field(page).press_sequentially("one")
    await press(page, "Shift+Enter")
    await field(page).press_sequentially("two")
    await expect(field(page)).to_have_value("one\ntwo")
    await press(page, "Enter")
    await see_state(page)
    await expect(field(page)).to_have_value("")
    await expect(field(page)).to_be_focused()


@pytest.mark.console
async def test_an_agent_that_knows_its_callers_asks_for_a_credential_first(serve: Any, visit: Any, watch: Watch):
    watch.allow("status of 40")
    server = serve(GUARDED, "--auth", "apikey")
    server.users("add", "ann", "--password-stdin", typed="correct horse battery\n")
    key = server.users("key", "ann")
    page: Page = await visit(server.address("#/agents/vault/chat"))
    await expect(field(page)).to_be_disabled()
    await expect(page.get_by_role("button", name="Send")).to_be_disabled()
    await page.get_by_role("button", name="Enter credentials").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Key", exact=True).fill(key)
    await press(page, "Enter")
    await expect(dialog).to_have_count(0)
    await say(page, "who am I?")
    await expect((await see_state(page)).get_by_text("You are ann.")).to_be_visible()


@pytest.mark.console
async def test_the_other_binding_says_the_same(visit: Any, studio: ServedConsole, watch: Watch):
    page = await open_chat(visit, studio)
    await page.evaluate("() => localStorage.setItem('dragoman.binding', 'HTTP+JSON')")
    await page.reload()
    await say(page, "hello")
    await expect((await see_state(page)).get_by_text("Message 1: hello")).to_be_visible()
    await choose(page, "one_question")
    await say(page, "ask me")
    await see_state(page, "input required")
    await page.reload()
    await say(page, "Faro")
    await expect((await see_state(page)).get_by_text("You said: Faro")).to_be_visible()
    await choose(page, "wait")
    await say(page, "go")
    await expect(turn(page).get_by_text("begun")).to_be_visible()
    await page.get_by_role("button", name="Cancel").click()
    await see_state(page, "canceled")
    assert [url for url in watch.requests if url.endswith("/agents/studio/message:stream")]
    assert not [url for url in watch.requests if url.endswith("/agents/studio")]


# -- for everybody -----------------------------------------------------------------------------------------------------


@pytest.mark.console
async def test_the_keyboard_is_enough(visit: Any, parlor: ServedConsole):
    page: Page = await visit(parlor.address("#/agents/parlor/chat"))
    await expect(field(page)).to_be_focused()
    await tab_to(page, page.get_by_role("combobox", name="Skill"))
    await press(page, "a")
    await expect(page.get_by_role("combobox", name="Skill")).to_have_value("ask")
    await tab_to(page, field(page), back=True)
    await press(page, *"seat", "Enter")
    await see_state(page, "input required")
    await tab_to(page, turn(page).get_by_role("radio", name="aisle"), back=True)
    await press(page, "ArrowUp", "ArrowDown")
    await expect(turn(page).get_by_role("radio", name="aisle")).to_be_checked()
    await press(page, "Enter")
    await see_answer(page, "'aisle'")
    await tab_to(page, turn(page).get_by_role("link", name="Task", exact=True), back=True)
    await tab_to(page, page.get_by_role("log"), back=True)
    await tab_to(page, conversations(page).get_by_role("link").first, back=True)
    await tab_to(page, page.get_by_role("link", name="New conversation"), back=True)
    await press(page, "Enter")
    await expect(page.get_by_role("article", name="Turn")).to_have_count(0)
    await tab_to(page, field(page))
    assert "Message" in await focused(page)


@pytest.mark.console
async def test_screen_readers_hear_the_end_of_an_answer(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio)
    await say(page, "hello")
    received = page.get_by_role("region", name="Conversation").get_by_role("status")
    await expect(received).to_have_text(re.compile("completed: Message 1:"))
    await choose(page, "one_question")
    await say(page, "ask me")
    await expect(received).to_have_text("input required: Which city?")


@pytest.mark.console
@pytest.mark.timeout(120)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_nothing_in_a_chat_has_a_serious_problem_or_sticks_out(
    visit: Any, studio: ServedConsole, parlor: ServedConsole, subtests: pytest.Subtests, view: View, dark: bool
):
    async def check(page: Page, *what: str) -> None:
        with subtests.test(", ".join(what)):
            assert await axe(page) == []
            assert await sideways(page) == []

    page = await open_chat(visit, studio, view=view, dark=dark)
    await check(page, "empty")
    await say(page, "markdown")
    await see_state(page)
    await check(page, "markdown")
    for skill, state in {
        "files": "completed",
        "report": "completed",
        "fail": "failed",
        "calendar": "sign-in required",
        "wait": "working",
    }.items():
        await page.goto(studio.address(f"#/agents/studio/chat?skill={skill}"))
        await page.reload()
        await say(page, "go")
        await see_state(page, state)
        await check(page, skill)
    await page.locator("input[type=file]").set_input_files(
        [{"name": f"{'long ' * 40}.png", "mimeType": "image/png", "buffer": b"x"}]
    )
    await check(page, "attached")
    page = await open_chat(visit, parlor, "parlor", view=view, dark=dark)
    for kind in ("seat", "city", "traveller", "names"):
        await asked(page, kind)
        await check(page, kind)
        await page.get_by_role("button", name="Cancel").click()
        await see_state(page, "canceled")
    if view is PHONE:
        await page.get_by_role("button", name="Conversations").click()
        await expect(conversations(page)).to_be_visible()
        await check(page, "conversations")
        await page.get_by_role("button", name="Conversations").click()
        await expect(field(page)).to_be_visible()
