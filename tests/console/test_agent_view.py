"""The agent in the console: what it says of itself, forms for its skills, its card as JSON, and credentials."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console.browser import DESKTOP, PHONE
from console.driving import axe, focused, press, sideways, tab_to
from console.serving import GUARDED, HERE, ServedConsole
from console.watching import Watch
from playwright.async_api import Locator, Page, expect

WORKSHOP = f"{HERE / 'workshop.py'}:server"


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedConsole]:
    """The agents of `workshop.py`."""
    server = ServedConsole(tmp_path_factory.mktemp("workshop"), WORKSHOP)
    yield server
    server.stop()


def result_of(page: Page) -> Locator:
    return page.get_by_role("region", name="Result")


async def data_of(page: Page, state: str = "completed") -> Any:
    """The data of the result, as its copy button gives it, once the task is in a state."""
    result = result_of(page)
    await expect(result.get_by_text(state, exact=True)).to_be_visible()
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await result.get_by_role("button", name="Copy").click()
    return json.loads(await page.evaluate("() => navigator.clipboard.readText()"))


# -- the main way ------------------------------------------------------------------------------------------------------


async def test_a_skill_is_found_filled_in_corrected_and_run(visit: Any, studio: ServedConsole):
    page = await visit(studio.console)
    await expect(page.get_by_role("heading", name="studio")).to_be_visible()
    await expect(page.get_by_text("A studio for everything that an agent can do")).to_be_visible()
    about = page.get_by_role("complementary", name="The agent's card")
    await expect(about.get_by_role("link", name="https://studio.example/docs")).to_be_visible()
    await expect(about.get_by_text("Open to every caller.")).to_be_visible()

    await page.get_by_role("searchbox", name="Filter skills").fill("posters")
    await expect(page.get_by_role("article")).to_have_count(1)
    await page.get_by_role("button", name="Try order").click()
    form = page.get_by_role("form", name="Try order")
    await expect(form.get_by_role("combobox", name="size")).to_have_value("1")
    await expect(form.get_by_role("checkbox", name="glossy")).to_be_checked()
    title = form.get_by_role("textbox", name="title")
    await expect(title).to_have_accessible_description("what stands on the poster")
    await expect(form.get_by_role("textbox", name="price")).to_have_accessible_description(
        re.compile("at most, for one.*Default 9.5")
    )

    await form.get_by_role("button", name="Run").click()
    await expect(title).to_be_focused()
    await expect(title).to_have_accessible_description(re.compile("This needs a value"))
    await title.fill("Spring")
    copies = form.get_by_role("textbox", name="copies")
    await copies.fill("501")
    await expect(copies).to_have_accessible_description(re.compile(r"At most 500\."))
    await copies.fill("3")
    await form.get_by_role("combobox", name="color").select_option("green")
    await form.get_by_role("combobox", name="size").select_option("large")
    await form.get_by_role("checkbox", name="glossy").uncheck()
    address = form.get_by_role("group", name="address")
    await address.get_by_role("textbox", name="street").fill("Rua Augusta 1")
    await form.get_by_role("button", name="Run").click()
    city = address.get_by_role("textbox", name="city")
    await expect(city).to_be_focused()
    await city.fill("Lisbon")
    await press(page, "Enter")
    assert await data_of(page) == {
        "title": "Spring",
        "copies": 3,
        "color": "green",
        "size": "large",
        "glossy": False,
        "price": 9.5,
        "address": {"street": "Rua Augusta 1", "city": "Lisbon", "country": "PT"},
    }
    await result_of(page).get_by_role("link", name="Task", exact=True).click()
    await expect(page).to_have_url(re.compile("#/tasks/"))


# -- forms -------------------------------------------------------------------------------------------------------------


@pytest.mark.console
async def test_numbers_choices_and_switches_are_sent_as_what_they_are(visit: Any, workshop: ServedConsole):
    page = await visit(workshop.address("#/agents/bench/skills/paint"))
    form = page.get_by_role("form", name="Try paint")
    amount = form.get_by_role("textbox", name="amount")
    await expect(amount).to_have_accessible_description("liters, whole ones 1 to 20")
    assert await form.get_by_role("combobox", name="finish").locator("option").all_inner_texts() == [
        "Choose …",
        "matte",
        "satin",
        "glossy",
    ]
    await expect(form.get_by_role("combobox", name="coats")).to_have_accessible_description("Default 2")
    await form.get_by_role("textbox", name="title").fill("A fence\nof wood")
    await form.get_by_role("button", name="Run").click()
    await expect(amount).to_be_focused()
    for typed, problem in {
        "many": "whole number",
        "1.5": "whole number",
        "0": "At least 1",
        "21": "At most 20",
    }.items():
        await amount.fill(typed)
        await expect(amount).to_have_accessible_description(re.compile(problem))
    await amount.fill("+7")
    await expect(amount).not_to_have_attribute("aria-invalid", "true")
    await form.get_by_role("combobox", name="color").select_option("blue")
    await form.get_by_role("combobox", name="finish").select_option("satin")
    await form.get_by_role("combobox", name="coats").select_option("3")
    ratio = form.get_by_role("textbox", name="ratio")
    await ratio.fill("1.0")
    await expect(ratio).to_have_value("1.0")
    await ratio.fill("2.5e-1")
    await form.get_by_role("checkbox", name="dry").check()
    await form.get_by_role("combobox", name="careful").select_option("No")
    code = form.get_by_role("textbox", name="code")
    await code.fill("abc")
    await expect(code).to_have_accessible_description(re.compile("has to match"))
    await code.fill("XYZ")
    await form.get_by_role("button", name="Run").click()
    assert await data_of(page) == {
        "title": "A fence\nof wood",
        "amount": 7,
        "color": "BLUE",
        "finish": "satin",
        "coats": 3,
        "ratio": 0.25,
        "dry": True,
        "careful": False,
        "code": "XYZ",
    }


@pytest.mark.console
async def test_emptied_fields_are_left_out_and_reset_restores_the_defaults(visit: Any, workshop: ServedConsole):
    page = await visit(workshop.address("#/agents/bench/skills/paint"))
    form = page.get_by_role("form", name="Try paint")
    await form.get_by_role("textbox", name="title").fill("x")
    await form.get_by_role("textbox", name="amount").fill("1")
    await form.get_by_role("combobox", name="color").select_option("red")
    await form.get_by_role("combobox", name="finish").select_option("matte")
    await form.get_by_role("textbox", name="ratio").fill("")
    await form.get_by_role("combobox", name="coats").select_option("(left out)")
    await form.get_by_role("button", name="Run").click()
    data = await data_of(page)
    assert (data["ratio"], data["coats"], data["careful"]) == (0.5, 2, None)  # as the skill has it
    await form.get_by_role("button", name="Reset").click()
    await expect(form.get_by_role("textbox", name="ratio")).to_have_value("0.5")
    await expect(form.get_by_role("textbox", name="title")).to_have_value("")
    await expect(result_of(page)).to_have_count(0)


@pytest.mark.console
async def test_lists_maps_alternatives_and_nested_objects_are_built_up(visit: Any, workshop: ServedConsole):
    page = await visit(workshop.address("#/agents/bench/skills/build"))
    form = page.get_by_role("form", name="Try build")
    await form.get_by_role("textbox", name="name", exact=True).fill("house")
    add = form.get_by_role("button", name="Add an item to corners")
    for x, y in ((1, 2), (3, 4), (5, 6)):
        await add.click()
        await expect(form.get_by_role("textbox", name="x", exact=True).last).to_be_focused()
        await form.get_by_role("textbox", name="x", exact=True).last.fill(str(x))
        await form.get_by_role("textbox", name="y", exact=True).last.fill(str(y))
    await form.get_by_role("button", name="Move corners 3 up").click()
    await expect(form.get_by_role("button", name="Move corners 2 up")).to_be_focused()
    await form.get_by_role("button", name="Remove corners 1").click()
    await expect(form.get_by_role("textbox", name="x", exact=True)).to_have_count(2)

    shape = form.get_by_role("group", name="shape")
    kind = shape.get_by_role("combobox", name="Kind of shape")
    assert await kind.locator("option").all_inner_texts() == ["Circle", "Box"]
    await shape.get_by_role("textbox", name="radius").fill("2.5")
    await kind.select_option("Box")
    await expect(shape.get_by_role("textbox", name="radius")).to_have_count(0)
    await expect(shape.get_by_role("textbox", name="height")).to_have_value("1")
    await shape.get_by_role("textbox", name="width").fill("4")

    size = form.get_by_role("group", name="size")
    await size.get_by_role("combobox", name="Kind of size").select_option("text")
    await size.get_by_role("textbox", name="text").fill("12")

    for word in ("old", "new"):
        await form.get_by_role("button", name="Add an item to labels").click()
        await form.get_by_role("textbox", name="labels").last.fill(word)
    seats = form.get_by_role("group", name="seats")
    for row, count in {"front": "4", "__proto__": "9"}.items():
        await seats.get_by_role("textbox", name="Name of a new entry of seats").fill(row)
        await press(page, "Enter")
        await seats.get_by_role("textbox", name=row, exact=True).fill(count)
    await form.get_by_role("button", name="Run").click()
    assert await data_of(page) == {
        "drawing": ["house", [[5, 6], [3, 4]]],
        "shape": {"type": "box", "width": 4, "height": 1},
        "size": "12",
        "labels": ["old", "new"],
        "seats": {"front": 4, "__proto__": 9},
        "pair": None,
    }


@pytest.mark.console
async def test_a_pair_that_is_optional_can_be_given_and_left_out(visit: Any, workshop: ServedConsole):
    page = await visit(workshop.address("#/agents/bench/skills/build"))
    form = page.get_by_role("form", name="Try build")
    await form.get_by_role("textbox", name="name", exact=True).fill("house")
    await form.get_by_role("textbox", name="radius").fill("1")
    await form.get_by_role("button", name="Add pair").click()
    await form.get_by_role("button", name="Run").click()
    await expect(form.get_by_role("textbox", name="pair 1")).to_be_focused()
    await form.get_by_role("textbox", name="pair 1").fill("7")
    await form.get_by_role("textbox", name="pair 2").fill("seven")
    await form.get_by_role("button", name="Run").click()
    assert (await data_of(page))["pair"] == [7, "seven"]
    await form.get_by_role("button", name="Leave out pair").click()
    await form.get_by_role("button", name="Run").click()
    assert (await data_of(page))["pair"] is None


async def test_a_skill_that_takes_files_has_fields_for_them(visit: Any, workshop: ServedConsole, tmp_path: Path):
    page = await visit(workshop.address("#/agents/bench/skills/frame"))
    form = page.get_by_role("form", name="Try frame")
    picture, note = tmp_path / "my cat.png", tmp_path / "note.txt"
    picture.write_bytes(b"\x89PNG")
    note.write_text("abc")
    photo = form.get_by_label("photo")
    await expect(photo).to_have_attribute("accept", "image/*")
    await photo.set_input_files(picture)
    await form.get_by_role("button", name="Add an item to more").click()
    await form.get_by_label("more 1", exact=True).set_input_files(note)
    await form.get_by_role("button", name="Run").click()
    assert await data_of(page) == {"files": [["my cat.png", "image/png", 4], ["note.txt", "text/plain", 3]]}


@pytest.mark.console
async def test_files_and_times_are_given_with_the_fields_of_the_browser(
    visit: Any, workshop: ServedConsole, tmp_path: Path
):
    page = await visit(workshop.address("#/agents/bench/skills/keep"), timezone_id="Europe/Lisbon")
    form = page.get_by_role("form", name="Try keep")
    await form.get_by_role("button", name="Run").click()
    content = form.get_by_label("content")
    await expect(content).to_have_accessible_description(re.compile("This needs a value"))
    file = tmp_path / "note.txt"
    file.write_text("café ☕")
    await content.set_input_files(file)
    await expect(content).to_have_accessible_description("9 B, sent as base64")
    await form.get_by_label("day").fill("2026-07-31")
    await form.get_by_label("at", exact=True).fill("09:30:00")
    await form.get_by_label("moment").fill("2026-07-31T09:30:00")
    number = form.get_by_label("number")
    await number.fill("7")
    await form.get_by_role("button", name="Run").click()
    await expect(number).to_be_focused()
    await number.fill("12345678-1234-5678-1234-567812345678")
    more = form.get_by_label("more")
    await more.fill('{"a": [1, tru')
    await expect(more).to_have_accessible_description(re.compile("This is not JSON"))
    await more.fill('{"a": [1, true]}')
    await form.get_by_role("button", name="Run").click()
    assert await data_of(page) == {
        "content": "café ☕",
        "day": "2026-07-31",
        "at": "09:30:00",
        "moment": "2026-07-31T08:30:00+00:00",
        "number": "12345678-1234-5678-1234-567812345678",
        "more": {"a": [1, True]},
    }


@pytest.mark.console
async def test_arguments_can_be_edited_as_json_and_go_back_to_the_form(visit: Any, studio: ServedConsole):
    page = await visit(studio.address("#/agents/studio/skills/invite"))
    form = page.get_by_role("form", name="Try invite")
    await form.get_by_role("button", name="Edit as JSON").click()
    text = form.get_by_role("textbox", name="Arguments as JSON")
    assert json.loads(await text.input_value()) == {"guests": [], "code": "ABC", "either": 1}
    await text.fill('{"guests": [{"name": "Ann", "age": 200}]}')
    await form.get_by_role("button", name="Run").click()
    await expect(text).to_be_focused()
    await expect(text).to_have_accessible_description(re.compile(r"/guests/0/age: At most 150\."))
    await text.fill('{"guests": [{"name": "Ann", "age": 50}], "day": "2026-01-31"}')
    await form.get_by_role("button", name="Back to the form").click()
    await expect(form.get_by_role("textbox", name="name", exact=True)).to_have_value("Ann")
    await expect(form.get_by_label("day")).to_have_value("2026-01-31")
    await form.get_by_role("button", name="Add address").click()
    await form.get_by_role("textbox", name="street").fill("Rua 1")
    await form.get_by_role("button", name="Leave out address").click()
    await form.get_by_role("button", name="Run").click()
    data = await data_of(page)
    assert (data["guests"], data["day"], data["code"]) == (["Ann"], "2026-01-31", "ABC")


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.mark.console
async def test_a_run_shows_what_has_come_so_far_and_is_canceled(visit: Any, studio: ServedConsole):
    page = await visit(studio.address("#/agents/studio/skills/wait"))
    await expect(page.get_by_text("It takes no arguments.")).to_be_visible()
    await page.get_by_role("button", name="Run").click()
    result = result_of(page)
    await expect(result.get_by_text("begun")).to_be_visible()
    await expect(result.get_by_text("working until you cancel")).to_be_visible()
    await expect(result).to_have_attribute("aria-busy", "true")
    await expect(page.get_by_role("button", name="Run")).to_be_disabled()
    await result.get_by_role("button", name="Cancel").click()
    await expect(result.get_by_text("canceled", exact=True)).to_be_visible()
    await expect(result).to_have_attribute("aria-busy", "false")
    await expect(page.get_by_role("status").filter(has_text="Result: canceled")).to_be_visible()
    await expect(page.get_by_role("button", name="Run")).to_be_enabled()


@pytest.mark.console
async def test_a_result_has_progress_artifacts_and_a_last_message(visit: Any, studio: ServedConsole):
    page = await visit(studio.address("#/agents/studio/skills/report"))
    await page.get_by_role("textbox", name="title").fill("Autumn")
    await press(page, "Enter")
    result = result_of(page)
    await expect(result.get_by_text("completed", exact=True)).to_be_visible()
    await expect(result.get_by_role("heading", name="Autumn")).to_be_visible()
    await expect(result.get_by_text("figures", exact=True)).to_be_visible()
    await expect(result.get_by_text("first draft")).to_be_visible()
    await expect(result.get_by_text("The next report comes on Friday.")).to_be_visible()
    await expect(result.get_by_role("progressbar")).to_have_count(0)


@pytest.mark.console
async def test_a_question_is_answered_in_the_chat(visit: Any, studio: ServedConsole):
    page = await visit(studio.address("#/agents/studio/skills/one_question"))
    await page.get_by_role("button", name="Run").click()
    result = result_of(page)
    await expect(result.get_by_text("Which city?")).to_be_visible()
    await expect(result.get_by_text("input required")).to_be_visible()
    await result.get_by_role("link", name="Answer in the chat").click()
    await expect(page).to_have_url(re.compile("#/agents/studio/chat/."))
    answer = page.get_by_role("textbox", name="Answer")
    await answer.fill("Lisbon")
    await press(page, "Enter")
    await expect(page.get_by_text("You said: Lisbon", exact=True)).to_be_visible()


@pytest.mark.console
async def test_failures_say_what_the_agent_says_and_hide_what_it_hides(visit: Any, watch: Watch, studio: ServedConsole):
    page = await visit(studio.address("#/agents/studio/skills/fail"))
    await page.get_by_role("button", name="Run").click()
    await expect(result_of(page).get_by_text("there are nine doors")).to_be_visible()
    await expect(result_of(page).get_by_text("failed", exact=True)).to_be_visible()
    await page.goto(studio.address("#/agents/studio/skills/broken"))
    await page.get_by_role("button", name="Run").click()
    await expect(result_of(page).get_by_text("failed", exact=True)).to_be_visible()
    await expect(result_of(page).get_by_text(re.compile("reference"))).to_be_visible()
    assert "1234" not in await page.content()
    watch.allow("status of 400")
    await page.goto(studio.address("#/agents/studio/skills/refuse"))
    await page.get_by_role("textbox", name="shape").fill("square")
    await press(page, "Enter")
    await expect(page.get_by_text("there is no square")).to_be_visible()


@pytest.mark.console
async def test_files_are_sent_beside_the_arguments(visit: Any, studio: ServedConsole, tmp_path: Path):
    page = await visit(studio.address("#/agents/studio/skills/receive"))
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text(name)
    form = page.get_by_role("form", name="Try receive")
    await form.get_by_role("button", name="Add files").click()
    await form.get_by_label("Files").set_input_files([tmp_path / "one.txt", tmp_path / "two.txt"])
    await form.get_by_role("button", name="Remove one.txt").click()
    await form.get_by_role("button", name="Run").click()
    await expect(result_of(page).get_by_text("two.txt text/plain 7 bytes")).to_be_visible()
    await expect(result_of(page).get_by_text("one.txt")).to_have_count(0)


@pytest.mark.console
async def test_arguments_and_their_result_stay_while_the_page_is_open(visit: Any, studio: ServedConsole):
    page = await visit(studio.address("#/agents/studio/skills/fail"))
    await page.get_by_role("textbox", name="text").fill("the door is shut")
    await page.get_by_role("button", name="Run").click()
    await expect(result_of(page).get_by_text("the door is shut")).to_be_visible()
    await page.get_by_role("link", name="All skills").click()
    await page.get_by_role("link", name="library", exact=True).click()
    await page.go_back()
    await page.go_back()
    await expect(page.get_by_role("textbox", name="text")).to_have_value("the door is shut")
    await expect(result_of(page).get_by_text("the door is shut")).to_be_visible()


# -- the card ----------------------------------------------------------------------------------------------------------


@pytest.mark.console
async def test_the_card_is_shown_as_it_is_served_with_its_problems_marked(visit: Any, workshop: ServedConsole):
    page = await visit(workshop.address("#/agents/careless"))
    link = page.get_by_role("link", name=re.compile("Card as JSON"))
    await expect(link).to_contain_text("2 problems")
    await link.click()
    await expect(page).to_have_url(re.compile("#/agents/careless/card$"))
    rows = page.get_by_role("region", name="Problems of the card").get_by_role("row")
    await expect(rows.nth(1)).to_contain_text("documentationUrl")
    await expect(rows.nth(1)).to_contain_text("'nowhere' is not an absolute URL")
    await expect(rows.nth(1)).to_contain_text("A2A 1.0, 4.4.1")
    card = page.get_by_role("group", name="The card as it is served")
    marked = card.locator(".line").filter(has_text="warning:")
    await expect(marked).to_have_count(2)
    await expect(marked.first).to_contain_text('"documentationUrl": "nowhere"')
    await card.get_by_role("button", name='Fold "skills"').click()
    await expect(card.get_by_text("shrug")).to_have_count(0)
    await expect(card.get_by_role("button", name='Unfold "skills"')).to_be_focused()
    await press(page, "Enter")
    await expect(card.get_by_text('"shrug"').first).to_be_visible()
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.get_by_role("button", name="Copy", exact=True).click()
    copied = await page.evaluate("() => navigator.clipboard.readText()")
    served = await page.request.get(f"{workshop.url}/agents/careless/.well-known/agent-card.json")
    assert copied == await served.text()
    await expect(page.get_by_text(f"dragoman card {workshop.url}/agents/careless --validate")).to_be_visible()
    await page.goto(workshop.address("#/agents/bench/card"))
    await expect(page.get_by_text("No problems found")).to_be_visible()


@pytest.mark.console
async def test_a_skill_without_a_schema_gets_words_and_places_that_are_not_there_say_so(
    visit: Any, studio: ServedConsole
):
    page = await visit(studio.address("#/agents/parrot"))
    await page.get_by_role("button", name="Try parrot").click()
    await expect(page.get_by_text("This skill has no schema: it gets your words.")).to_be_visible()
    await page.get_by_role("textbox", name="message").fill("hello")
    await press(page, "Enter")
    await expect(result_of(page).get_by_text("Say it again?")).to_be_visible()
    await page.goto(studio.address("#/agents/studio/skills/none"))
    await expect(page.get_by_role("heading", name="There is no such skill")).to_be_visible()
    await page.goto(studio.address("#/agents/nobody"))
    await expect(page.get_by_role("heading", name="There is no such agent")).to_be_visible()
    await page.goto(f"{studio.url}/agents/library")
    await expect(page).to_have_url(re.compile("/#/agents/library$"))
    await expect(page.get_by_role("heading", name="library")).to_be_visible()


@pytest.mark.console
async def test_an_example_leads_to_the_chat_with_its_words(visit: Any, studio: ServedConsole):
    page = await visit(studio.address("#/agents/library"))
    await page.get_by_role("article", name="Skill find").get_by_role("link", name="cities").click()
    await expect(page.get_by_role("textbox", name="Message")).to_have_value("cities")


# -- keys, phones and screen readers -----------------------------------------------------------------------------------


@pytest.mark.console
async def test_a_skill_is_run_with_keys_alone(visit: Any, studio: ServedConsole):
    page = await visit(studio.console)
    await expect(page.get_by_role("heading", name="studio")).to_be_visible()
    await press(page, "/", *"add_book")
    await press(page, "Escape")
    await page.get_by_role("link", name="library", exact=True).focus()
    await press(page, "Enter")
    await expect(page.get_by_role("heading", name="library")).to_be_visible()
    await tab_to(page, page.get_by_role("button", name="Try add_book"))
    await press(page, "Enter")
    await tab_to(page, page.get_by_role("textbox", name="title"))
    await page.keyboard.type("Emma")
    await press(page, "Tab")
    assert await focused(page) == "textarea author"
    await page.keyboard.type("Jane Austen")
    await press(page, "Tab")
    await page.keyboard.type("1815")
    await press(page, "Enter")
    await expect(result_of(page).get_by_text("Emma (1815) is on the shelf.")).to_be_visible()


@pytest.mark.console
@pytest.mark.timeout(240)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("view", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_forms_results_and_problems_have_no_serious_problem_and_do_not_stick_out(
    visit: Any, studio: ServedConsole, workshop: ServedConsole, subtests: pytest.Subtests, view: Any, dark: bool
):
    async def check(*row: str) -> None:
        with subtests.test(", ".join(row)):
            assert await axe(page) == []
            assert await sideways(page) == []

    page = await visit(workshop.address("#/agents/careless/card"), view=view, dark=dark)
    await expect(page.get_by_role("heading", name="Problems")).to_be_visible()
    await check("card")
    for skill in ("paint", "build", "keep"):
        await page.goto(workshop.address(f"#/agents/bench/skills/{skill}"))
        form = page.get_by_role("form", name=f"Try {skill}")
        for button in await form.get_by_role("button", name=re.compile("^Add (an item|pair)")).all():
            await button.click()
        await form.get_by_role("button", name="Run").click()
        await expect(form.get_by_text(re.compile("This needs a value")).first).to_be_visible()
        await check(skill)
    page = await visit(studio.address("#/agents/studio/skills/report"), view=view, dark=dark)
    await page.get_by_role("button", name="Run").click()
    await expect(result_of(page).get_by_text("completed", exact=True)).to_be_visible()
    await check("result")
    await page.goto(studio.address("#/agents/studio/skills/one_question"))
    await page.get_by_role("button", name="Run").click()
    await expect(result_of(page).get_by_text("Which city?")).to_be_visible()
    await check("question")


# -- credentials -------------------------------------------------------------------------------------------------------


async def enter(page: Page, **fields: str) -> None:
    """Fill in the dialog for credentials, and send it."""
    dialog = page.get_by_role("dialog", name="Credentials")
    for label, value in fields.items():
        await dialog.get_by_label(label, exact=True).fill(value)
    await dialog.get_by_role("button", name="Use").click()


@pytest.mark.console
@pytest.mark.parametrize("scheme", ["bearer", "apikey", "basic"])
async def test_credentials_are_typed_tried_used_and_forgotten(visit: Any, watch: Watch, serve: Any, scheme: str):
    watch.allow("status of 401")
    server = serve(GUARDED, "--auth", scheme)
    server.users("add", "ann", "--password-stdin", "--permission", "vault", typed="correct horse battery\n")
    key = server.users("key", "ann")
    page = await visit(server.address("#/agents/vault"))
    await expect(page.get_by_role("article", name="Skill open_vault")).to_have_count(0)
    await page.get_by_role("button", name="Try whoami").click()
    await page.get_by_role("button", name="Run").click()
    await expect(result_of(page).get_by_role("alert")).to_be_visible()
    await result_of(page).get_by_role("button", name="Enter credentials").click()
    assert await axe(page) == []
    labels = {"bearer": "Token", "apikey": "Key", "basic": "Password"}
    name = {"Name": "ann"} if scheme == "basic" else {}
    await enter(page, **name, **{labels[scheme]: "not the right one"[:3]})
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("refused")
    await enter(page, **name, **{labels[scheme]: "correct horse battery" if scheme == "basic" else key})
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(page.get_by_text("Your credentials for this agent are kept in this page")).to_be_visible()
    await expect(page.get_by_role("article", name="Skill open_vault")).to_be_visible()
    await page.get_by_role("form", name="Try whoami").get_by_role("button", name="Run").click()
    await expect(result_of(page).get_by_text("You are ann.")).to_be_visible()
    assert key not in await page.content()
    assert await page.evaluate("() => JSON.stringify([localStorage, sessionStorage])") == await page.evaluate(
        "() => JSON.stringify([{ ...localStorage }, {}])"
    )
    await page.get_by_role("button", name="Forget credentials").click()
    await expect(page.get_by_role("article", name="Skill open_vault")).to_have_count(0)
    await page.get_by_role("button", name="Run").click()
    await expect(result_of(page).get_by_role("alert")).to_be_visible()
