"""How busy a page is, from a trace of the browser: the CPU time of its main thread, whatever else the machine does."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Page

_CATEGORIES = ["toplevel", "blink.user_timing", "disabled-by-default-devtools.timeline", "devtools.timeline"]
_MARK = "the page that is traced"
_QUESTION = "blink.mojom.DevToolsSession"
_TASKS = ("RunTask", "ThreadControllerImpl::RunTask")


@asynccontextmanager
async def cpu_tasks(page: Page) -> AsyncGenerator[list[float]]:
    """Trace what is done within; afterwards the list has the CPU milliseconds of each task, longest first."""
    browser = page.context.browser
    assert browser is not None
    tasks: list[float] = []
    await browser.start_tracing(page=page, categories=_CATEGORIES)
    await page.evaluate("(name) => { performance.mark(name) }", _MARK)
    try:
        yield tasks
    finally:
        events: list[dict[str, Any]] = json.loads(await browser.stop_tracing())["traceEvents"]
    # Pages of tests before this one may still be taken down, by processes of their own.
    main = {(event["pid"], event["tid"]) for event in events if event.get("name") == _MARK}
    own = [event for event in events if event.get("ph") == "X" and (event["pid"], event["tid"]) in main]
    # What the test itself asks the page for is no work of the page.
    asked = sorted(event["ts"] for event in own if _QUESTION in json.dumps(event.get("args", {})))
    for event in own:
        if event["name"] in _TASKS:
            next_question = bisect_left(asked, event["ts"])
            if next_question == len(asked) or asked[next_question] > event["ts"] + event["dur"]:
                tasks.append(event.get("tdur", 0) / 1000)
    tasks.sort(reverse=True)
