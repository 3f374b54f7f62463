"""The browser of the tests: which program it is, how it is started, and how large its windows are."""

from __future__ import annotations

import os
import shutil
from typing import Any, NamedTuple

from playwright.async_api import Browser, BrowserContext, Playwright, ViewportSize, expect

# The first is Chromium without what draws its windows, which the others start, and never show, for each profile.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
NO_BROWSER = "no browser: `make .peers/chromium/ready` installs one or says how, and TEST_BROWSER names another one"
FLAGS = (
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
# A machine that runs three tests at once is slow; a test has 20 seconds.
STEP_MS = 8_000


class View(NamedTuple):
    """The size of a window, and whether it is one that fingers use."""

    width: int
    height: int
    touch: bool = False


DESKTOP = View(1280, 800)
PHONE = View(360, 740, touch=True)


def find_browser() -> str | None:
    """The program of a Chromium, or None."""
    return os.environ.get("TEST_BROWSER") or next(filter(None, map(shutil.which, (*BROWSERS, _MAC))), None)


async def launch(playwright: Playwright, program: str, *, outside: int | None = None) -> Browser:
    """Start the browser without a window. It reaches only 127.0.0.1; `outside` is the port that stands for others.

    Hosts of hostile texts end in `.example`, and are that port; those that the browser itself asks are not found.
    """
    expect.set_options(timeout=STEP_MS)
    rules = [] if outside is None else [f"MAP *.example 127.0.0.1:{outside}"]
    resolver = f"--host-resolver-rules={','.join([*rules, 'MAP * ~NOTFOUND', 'EXCLUDE 127.0.0.1'])}"
    # Chromium has no sandbox for root, who runs the tests in containers.
    sandbox = () if os.geteuid() else ("--no-sandbox",)
    return await playwright.chromium.launch(executable_path=program, args=[*FLAGS, *sandbox, resolver])


async def new_profile(browser: Browser, *, view: View = DESKTOP, dark: bool = False, **options: Any) -> BrowserContext:
    """Return a fresh profile with windows of this size and these colors; options as for `Browser.new_context`."""
    context = await browser.new_context(
        viewport=ViewportSize(width=view.width, height=view.height),
        has_touch=view.touch,
        is_mobile=view.touch,
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
        service_workers="block",
        **{"locale": "en-US", "timezone_id": "UTC", **options},
    )
    context.set_default_timeout(STEP_MS)
    return context
