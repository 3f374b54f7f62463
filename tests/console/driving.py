"""What tests do with a page beyond what Playwright has: keys, accessibility, how long it was busy, what sticks out."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from playwright.async_api import Locator, Page

AXE = Path(__file__).with_name("vendor") / "axe.min.js"
AXE_SHA256 = "20c09fe157a8a34a30e241aaa1fcdade657734f08ab379ecfbeb7d45cc46e878"
BAD_IMPACTS = ("serious", "critical")

# Elements that reach beyond the window, other than within something that scrolls or clips by itself.
_SIDEWAYS = """
() => {
  const found = [], wide = document.documentElement.clientWidth;
  const contained = (node) => {
    for (let each = node.parentElement; each && each !== document.body; each = each.parentElement) {
      if (getComputedStyle(each).overflowX !== "visible") return true;
    }
    return false;
  };
  for (const node of document.body.querySelectorAll("*")) {
    if (!node.checkVisibility({ visibilityProperty: true })) continue;
    const box = node.getBoundingClientRect();
    if (box.width && box.height && (box.right > wide + 1 || box.left < -1) && !contained(node)) {
      const label = node.tagName.toLowerCase() + (node.className?.trim ? "." + node.className.trim() : "");
      found.push(`${label.slice(0, 100)} ${Math.round(box.left)}…${Math.round(box.right)} of ${wide}`);
    }
  }
  if (document.documentElement.scrollWidth > wide + 1) found.push(`the page scrolls sideways`);
  return found.slice(0, 20);
}
"""

_FOCUSED = """
() => {
  let node = document.activeElement;
  while (node?.shadowRoot?.activeElement) node = node.shadowRoot.activeElement;
  if (!node || node === document.body) return "";
  const text = node.labels?.[0]?.textContent || node.textContent || node.value || "";
  const label = node.getAttribute("aria-label") || text;
  return `${node.getAttribute("role") || node.tagName.toLowerCase()} ${label.trim().slice(0, 80)}`.trim();
}
"""


class Violation(NamedTuple):
    """A rule of axe-core that the page breaks, and the elements that do."""

    rule: str
    impact: str
    help: str
    elements: tuple[str, ...]


@cache
def _axe_source() -> str:
    source = AXE.read_bytes()
    assert hashlib.sha256(source).hexdigest() == AXE_SHA256, "axe.min.js is not the file that vendor/README.md names"
    return source.decode()


async def axe(page: Page, *, within: str | None = None) -> list[Violation]:
    """Return the serious and critical problems that axe-core finds on the page as it is now, or in one part of it."""
    # What the debugger evaluates is not subject to the page's policy, which a script element would be.
    if not await page.evaluate("() => 'axe' in window"):
        await page.evaluate(f"() => {{ {_axe_source()} }}")
    found = await page.evaluate(
        """async (within) => {
          const result = await axe.run(within ?? document, { resultTypes: ["violations"] });
          return result.violations.map(({ id, impact, help, nodes }) =>
            ({ id, impact, help, nodes: nodes.map((node) => `${node.html} [${node.failureSummary ?? ""}]`) }));
        }""",
        within,
    )
    return [
        Violation(each["id"], each["impact"], each["help"], tuple(node[:600] for node in each["nodes"]))
        for each in found
        if each["impact"] in BAD_IMPACTS
    ]


async def long_tasks(page: Page, *, since_now: bool = False) -> list[float]:
    """Return for how many milliseconds each long task (over 50 ms) has kept the page busy so far.

    With `since_now` they are forgotten afterwards: the next call returns those after this one.
    """
    return await page.evaluate(
        """async (forget) => {
          // What the observer has not reported yet comes with the next frames.
          await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0))));
          const tasks = [...window.__longTasks];
          if (forget) window.__longTasks.length = 0;
          return tasks;
        }""",
        since_now,
    )


async def sideways(page: Page) -> list[str]:
    """Return the elements that stick out of the window sideways; those in a box that scrolls do not."""
    return await page.evaluate(_SIDEWAYS)


async def focused(page: Page) -> str:
    """Return the role (or tag) and label of what has the focus, or an empty text."""
    return await page.evaluate(_FOCUSED)


def sidebar(page: Page) -> Locator:
    """The places of the console, beside the one that is open."""
    return page.get_by_role("navigation", name="Console")


async def press(page: Page, *keys: str) -> None:
    """Press keys one after the other, as `"Tab"`, `"Enter"`, `"/"`, `"Control+Enter"`."""
    for key in keys:
        await page.keyboard.press(key)


async def tab_to(page: Page, target: Locator, *, back: bool = False, at_most: int = 80) -> None:
    """Press Tab, or Shift+Tab, until an element has the focus.

    Raises:
        AssertionError: it never got it; the message lists what did.
    """
    seen: list[str] = []
    for _ in range(at_most):
        await page.keyboard.press("Shift+Tab" if back else "Tab")
        if await target.evaluate("(node) => node === node.getRootNode().activeElement"):
            return
        seen.append(await focused(page))
    raise AssertionError(f"the Tab key does not lead to {target}; it leads to:\n" + "\n".join(seen))
