"""The picture of the README shows what the README shows."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = re.compile(r'<text class="o k[ b]*" x="([\d.]+)" y="(\d+)"[^>]*>([^<]*)</text>')


def test_the_picture_ends_with_what_the_readme_shows():
    lines: dict[int, list[tuple[float, str]]] = {}
    for x, y, text in TEXT.findall((ROOT / "docs/pictures/first-run.svg").read_text(encoding="utf-8")):
        lines.setdefault(int(y), []).append((float(x), unescape(text)))
    seen = {" ".join(" ".join(text for _, text in sorted(pieces)).split()) for pieces in lines.values()}
    seen = {re.sub(r"token=\S+", "token=…", line) for line in seen}  # another one at each start
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    served = re.search(r"^```sh serves\n(.*?)```\n```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    sent = re.search(r'^```sh types="\d"\n(.*?)```$', readme, re.MULTILINE | re.DOTALL)
    assert served is not None
    assert sent is not None
    shown = {" ".join(line.split()) for line in served[2].splitlines()}
    assert shown <= seen, "make picture records it again"
    assert {f"$ {served[1].strip()}", f"$ {sent[1].strip()}", "How many days?"} <= seen
