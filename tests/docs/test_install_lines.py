"""Install lines work: Dragoman is on no package index yet, so they name a checkout."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The folder of the checkout, as the README has it.
CHECKOUT = re.compile(r"(\.\./dragoman)(?:\[([a-z,-]+)\])?")


def texts() -> dict[str, str]:
    """What users read, and the source, by name."""
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}


def test_every_line_that_installs_dragoman_names_the_checkout_and_extras_there_are():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = 0
    for name, text in texts().items():
        for line in re.findall(r"(?:pip install|uv add|uvx --from)\s+(.*dragoman.*)", text):
            if name == "src/dragoman/installation.py" or "{" in line:
                continue
            words = [word for word in re.findall(r"[^\s'`\"]*dragoman(?:\[[^\]]*\])?", line) if word != "dragoman"]
            assert words, f"{name}: {line}"
            for word in words:
                match = CHECKOUT.fullmatch(word)
                assert match, f"{name}: {line}"
                assert set((match[2] or "mcp").split(",")) <= set(extras), f"{name}: {line}"
            lines += 1
    assert lines > 8


def test_the_readme_says_what_the_team_needs():
    team = (ROOT / "src/dragoman/examples/team.py").read_text()
    extras = re.findall(r'require\("[\w.]+", "(\w+)"\)', team)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (entry,) = re.findall(r"`python -m dragoman\.examples\.team`.*?(?=\n- )", readme, re.DOTALL)
    assert f"dragoman[{','.join(extras)}]" in entry


def test_only_one_module_builds_install_lines():
    builders = [
        name
        for name, text in texts().items()
        if name.startswith("src/") and re.search(r"['\"](?:uv )?pip['\"]|uv add|pip install", text)
    ]
    assert builders == ["src/dragoman/installation.py"]
