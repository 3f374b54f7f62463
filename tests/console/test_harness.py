"""The tests of the console see what they are meant to see: tried on small pages that do what the console must not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from console.browser import PHONE
from console.driving import axe, focused, long_tasks, press, sideways, tab_to
from console.watching import Watch
from playwright.async_api import Page, expect

from dragoman.testing import served

pytestmark = pytest.mark.console

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'"
GOOD = (
    "<!doctype html><html lang=en><title>Good</title><main><h1>Good</h1><label>Name <input></label>"
    "<button>Send</button></main><script src=script.js></script></html>"
)


@contextmanager
def a_page(body: str, script: str = "", policy: str = POLICY) -> Iterator[str]:
    """Serve a page and its script."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        files = {"/": ("text/html", body), "/script.js": ("text/javascript", script)}
        kind, text = files.get(scope["path"], ("text/plain", ""))
        headers = [(b"content-type", f"{kind}; charset=utf-8".encode()), (b"content-security-policy", policy.encode())]
        status = 200 if scope["path"] in files else 204
        await send({"type": "http.response.start", "status": status, "headers": headers if status == 200 else []})
        await send({"type": "http.response.body", "body": text.encode() if status == 200 else b""})

    with served(app) as url:
        yield f"{url}/"


async def problems_of(
    visit: Any, watch: Watch, problem: str, body: str, script: str = "", policy: str = POLICY
) -> list[str]:
    """What is wrong with a page, which would have failed the test, once a certain problem is among it."""
    with a_page(body, script, policy) as url:
        page = await visit(url)
        for _ in range(100):
            if any(problem in each for each in watch.seen()):
                break
            await next_frame(page)
    with pytest.raises(AssertionError, match=re.escape(problem)) as failed:
        watch.verdict()
    watch.allow("")
    return str(failed.value).splitlines()[1:]


async def next_frame(page: Page) -> None:
    """Wait until the page has been drawn again."""
    await page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")


async def test_a_page_that_does_nothing_wrong_passes(visit: Any, watch: Watch):
    with a_page(GOOD, "document.title = 'Ran'") as url:
        page = await visit(url)
        await expect(page).to_have_title("Ran")
        assert await axe(page) == []
        assert await sideways(page) == []
    assert watch.requests[:2] == [url, f"{url}script.js"]
    watch.verdict()


async def test_a_request_to_another_port_fails_the_test(visit: Any, watch: Watch):
    with a_page("nothing") as other:
        script = f"fetch('{other}').catch(() => {{}})"
        await problems_of(visit, watch, f"request: {other}", GOOD, script, "default-src *")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("<img src=http://tracker.example/a.png>", "request: http://tracker.example/a.png"),
        ("<img src=https://tracker.example/a.png>", "outside: TLS to"),
        ("<link rel=prefetch href=http://tracker.example/next>", "tracker.example/next"),
        ("<iframe src=http://tracker.example/frame></iframe>", "outside: GET /frame"),
    ],
)
async def test_a_request_beyond_this_machine_fails_the_test(visit: Any, watch: Watch, body: str, problem: str):
    await problems_of(visit, watch, problem, GOOD + body, policy="default-src * 'unsafe-inline'")


async def test_a_broken_policy_fails_the_test(visit: Any, watch: Watch):
    hostile = "<p style='color: red'>red</p><img src=x onerror=pwned(1)>"
    problems = await problems_of(visit, watch, "CSP: script-src-attr", GOOD + hostile)
    assert [each for each in problems if each.startswith("CSP: style-src-attr")]
    assert [each for each in problems if each.startswith("console error") and "Content Security Policy" in each]
    assert "a script of an agent ran" not in problems


async def test_a_script_of_an_agent_that_runs_fails_the_test(visit: Any, watch: Watch):
    policy, hostile = "default-src * 'unsafe-inline'", "<svg><script>pwned(1)</script></svg>"
    await problems_of(visit, watch, "a script of an agent ran", GOOD + hostile, policy=policy)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("console.error('oh no')", "console error: oh no"),
        ("throw new Error('thrown')", "page error: thrown"),
        ("Promise.reject(new Error('rejected'))", "page error: rejected"),
        ("alert('hello')", "dialog: alert hello"),
        ("new WebSocket(location.href.replace('http', 'ws'))", "websocket: ws://127.0.0.1"),
    ],
)
async def test_errors_dialogs_and_sockets_fail_the_test(visit: Any, watch: Watch, script: str, problem: str):
    await problems_of(visit, watch, problem, GOOD, script)


async def test_axe_finds_what_is_planted(visit: Any):
    with a_page(
        GOOD.replace("<button>Send</button>", "<button></button><img src='data:image/gif;base64,R0lGODlh'>")
    ) as url:
        page = await visit(url)
        assert {each.rule for each in await axe(page)} == {"button-name", "image-alt"}


async def test_a_long_task_is_seen(visit: Any):
    busy = "const end = performance.now() + 150; while (performance.now() < end);"
    script = f"setTimeout(() => {{ {busy} document.title = 'Over' }})"
    with a_page(GOOD, script) as url:
        page = await visit(url)
        await expect(page).to_have_title("Over")
        assert max(await long_tasks(page, since_now=True)) >= 140
        assert await long_tasks(page) == []


async def test_an_element_that_sticks_out_of_a_narrow_window_is_found(visit: Any):
    body = GOOD.replace("<html lang=en>", "<html lang=en><meta name=viewport content='width=device-width'>")
    style = "<link rel=stylesheet href=style.css><table width=500><tr><td>wide</table>"
    with a_page(body.replace("<main>", f"<main>{style}"), policy="default-src 'self'") as url:
        page = await visit(url, view=PHONE)
        assert [each for each in await sideways(page) if each.startswith("table")]


async def test_the_keyboard_leads_to_what_can_be_used(visit: Any):
    with a_page(GOOD) as url:
        page = await visit(url)
        await tab_to(page, page.get_by_role("button", name="Send"))
        assert await focused(page) == "button Send"
        await tab_to(page, page.get_by_label("Name"), back=True)
        await press(page, "a", "b")
        await expect(page.get_by_label("Name")).to_have_value("ab")
        with pytest.raises(AssertionError, match="does not lead to"):
            await tab_to(page, page.get_by_role("heading"), at_most=5)
