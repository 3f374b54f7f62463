"""Files in the chat: chosen, dropped and pasted, sent and sent back, previewed where that is safe, and saved."""

from __future__ import annotations

import base64
import os
import re
from typing import Any

import pytest
from console.driving import sideways
from console.samples import HTML, PDF, TEXT, png
from console.serving import ServedConsole
from console.talking import choose, field, open_chat, say, see_state, turn
from console.tracing import cpu_tasks
from console.watching import Watch
from playwright.async_api import Locator, Page, expect

pytestmark = pytest.mark.console


def to_send(page: Page) -> Locator:
    return page.get_by_role("list", name="Files to send")


async def transfer(page: Page, event: str, kind: str, name: str, data: bytes, media_type: str) -> None:
    """Let files be dropped on the page, or pasted into the field."""
    await field(page).evaluate(
        """(node, [event, kind, name, data, type]) => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([Uint8Array.from(atob(data), (each) => each.charCodeAt(0))], name, { type }));
          const options = { bubbles: true, cancelable: true, dataTransfer: transfer, clipboardData: transfer };
          node.dispatchEvent(new window[kind](event, options));
        }""",
        [event, kind, name, base64.b64encode(data).decode(), media_type],
    )


async def saved(page: Page, button: Locator) -> tuple[str, bytes]:
    """The name and the content of what a button downloads."""
    async with page.expect_download() as download:
        await button.click()
    file = await download.value
    return file.suggested_filename, (await file.path()).read_bytes()


async def test_files_are_chosen_dropped_pasted_removed_and_sent(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio, skill="receive")
    await page.locator("input[type=file]").set_input_files(
        [{"name": name, "mimeType": "text/plain", "buffer": b"chosen"} for name in ("a.txt", "b.txt")]
    )
    await transfer(page, "dragover", "DragEvent", "c.png", png(8, 8), "image/png")
    await expect(page.locator(".chat.dropping")).to_have_count(1)
    await transfer(page, "drop", "DragEvent", "c.png", png(8, 8), "image/png")
    await expect(page.locator(".chat.dropping")).to_have_count(0)
    await transfer(page, "paste", "ClipboardEvent", "d.bin", bytes(range(256)), "")
    await expect(to_send(page).get_by_role("listitem")).to_have_count(4)
    await expect(page.get_by_role("region", name="Conversation").get_by_role("status")).to_have_text("Added d.bin")
    await to_send(page).get_by_role("button", name="Remove a.txt").click()
    await expect(to_send(page).get_by_role("button", name="Remove b.txt")).to_be_focused()
    await say(page, "take these")
    answer = await see_state(page)
    await expect(to_send(page)).to_have_count(0)
    await expect(answer.get_by_role("listitem")).to_have_text(
        [
            "b.txt text/plain 6 bytes",
            f"c.png image/png {len(png(8, 8))} bytes",
            "d.bin application/octet-stream 256 bytes",
        ]
    )
    await expect(answer.get_by_role("img", name="c.png")).to_have_count(2)
    assert await saved(page, answer.get_by_role("button", name="Download d.bin").last) == ("d.bin", bytes(range(256)))


async def test_a_picture_in_the_clipboard_is_pasted(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio, skill="receive")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.evaluate(
        """async (data) => {
          const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
          const picture = new Blob([bytes], { type: "image/png" });
          await navigator.clipboard.write([new ClipboardItem({ "image/png": picture })]);
        }""",
        base64.b64encode(png(30, 20)).decode(),
    )
    await field(page).press("Control+v")
    await expect(to_send(page).get_by_role("listitem")).to_have_count(1)
    await field(page).press("Enter")
    answer = await see_state(page)
    await expect(answer.get_by_role("img").last).to_have_js_property("naturalWidth", 30)


async def test_pasted_words_stay_words(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio)
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.evaluate("() => navigator.clipboard.writeText('plain words')")
    await field(page).press("Control+v")
    await expect(field(page)).to_have_value("plain words")
    await expect(to_send(page)).to_have_count(0)


async def test_files_of_an_agent_are_previewed_where_that_is_safe_and_saved(
    visit: Any, studio: ServedConsole, watch: Watch
):
    watch.allow(r"^request: chrome(-extension)?://")  # the browser's own viewer of PDF files
    page = await open_chat(visit, studio, skill="files")
    await say(page, "send all")
    answer = await see_state(page)
    picture = answer.get_by_role("img", name="chart.png")
    await expect(picture).to_have_js_property("naturalWidth", 320)
    await expect(picture).to_have_attribute("src", re.compile("^blob:"))
    await expect(answer.get_by_label("Start of notes.txt")).to_contain_text("a line of notes, with <tags> & entities")
    await expect(answer.get_by_label("Start of page.html")).to_contain_text("<script>")
    await expect(answer.get_by_label("Start of drawing.svg")).to_contain_text("<circle")
    await expect(answer.get_by_role("img")).to_have_count(1)

    await answer.get_by_role("button", name="Preview").click()
    frame = answer.locator("iframe")
    await expect(frame).to_have_attribute("title", "Preview of paper.pdf")
    source = await frame.get_attribute("src")
    assert source is not None
    assert source.startswith("blob:")
    await answer.get_by_role("button", name="Hide").click()
    await expect(frame).to_have_count(0)

    for name, content in {
        "notes.txt": TEXT.encode(),
        "paper.pdf": PDF,
        "page.html": HTML.encode(),
        "data.bin": bytes(range(256)) * 40,
    }.items():
        assert await saved(page, answer.get_by_role("button", name=f"Download {name}")) == (name, content)
    assert await sideways(page) == []


async def test_a_file_elsewhere_is_a_link_that_names_its_host(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio, skill="link")
    await say(page, "where is it")
    answer = await see_state(page)
    await expect(answer.get_by_role("link", name="huge.zip")).to_have_attribute(
        "href", "https://files.example/huge.zip"
    )
    await expect(answer.get_by_text("on files.example")).to_be_visible()


@pytest.mark.timeout(120)
async def test_seven_megabytes_are_sent_without_keeping_the_page_busy(
    visit: Any, studio: ServedConsole, record_property: Any
):
    page = await open_chat(visit, studio, skill="receive")
    data = os.urandom(7_000_000)
    await page.locator("input[type=file]").set_input_files(
        [{"name": "large.bin", "mimeType": "application/octet-stream", "buffer": data}]
    )
    await expect(to_send(page)).to_contain_text("7.0 MB")
    async with cpu_tasks(page) as tasks:
        await field(page).press("Enter")
        await expect(turn(page).get_by_text("large.bin application/octet-stream 7000000 bytes")).to_be_visible(
            timeout=30_000
        )
        await see_state(page)
    record_property("longest", tasks[:5])
    assert tasks[0] < 100, tasks[:5]
    assert await saved(page, turn(page).get_by_role("button", name="Download large.bin").last) == ("large.bin", data)


async def test_files_that_are_too_large_are_refused_before_they_are_sent(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio, skill="receive")
    await page.locator("input[type=file]").set_input_files(
        [{"name": "huge.bin", "mimeType": "application/octet-stream", "buffer": bytes(8_000_000)}]
    )
    await expect(page.get_by_role("alert")).to_contain_text("a server takes 10 MB")


async def test_an_answer_can_be_a_file(visit: Any, studio: ServedConsole):
    page = await open_chat(visit, studio)
    await choose(page, "receive")
    await say(page, "nothing yet")
    answer = await see_state(page, "failed")
    await expect(answer.get_by_text("Send at least one file.")).to_be_visible()
    await transfer(page, "drop", "DragEvent", "later.txt", b"now", "text/plain")
    await field(page).press("Enter")
    await expect((await see_state(page)).get_by_role("listitem")).to_have_text(["later.txt text/plain 3 bytes"])
