"""Measures what tests/architecture/budget.toml limits. `python tests/architecture/budget.py` prints both, and `--write`
lowers the limits to what is measured; a limit is raised by hand, with its reason beside it."""

from __future__ import annotations

import re
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE, TESTS, BUDGET = ROOT / "src" / "dragoman", ROOT / "tests", Path(__file__).with_name("budget.toml")


def limits() -> dict[str, dict[str, int]]:
    """The numbers of the file: its tables `total`, `packages` and `surface`."""
    content = tomllib.loads(BUDGET.read_text(encoding="utf-8"))
    return {table: content[table] for table in ("total", "packages", "surface")}


def measured() -> dict[str, dict[str, int]]:
    """The same numbers of the tree as it is."""
    from dragoman.cli.main import VERBS
    from dragoman.server.config.settings import SETTINGS

    kernel = tomllib.loads(BUDGET.read_text(encoding="utf-8"))["kernel"]
    lines = {path.relative_to(SOURCE).as_posix(): _lines(path) for path in SOURCE.rglob("*.py")}
    packages: dict[str, int] = {}
    for file, count in lines.items():
        package = file.partition("/")[0] if "/" in file else "."
        packages[package] = packages.get(package, 0) + count
    total = {
        "kernel_lines": sum(count for file, count in lines.items() if is_kernel(file, kernel)),
        "source_lines": sum(lines.values()),
        "source_files": len(lines),
        "test_lines": sum(_lines(path) for path in TESTS.rglob("*.py")),
    }
    return {"total": total, "packages": packages, "surface": {"settings": len(SETTINGS), "verbs": len(VERBS)}}


def is_kernel(file: str, kernel: dict[str, list[str]]) -> bool:
    """Whether a module belongs to the kernel: a pattern of `paths` covers it, and none of `guests`."""
    return _is_covered(file, kernel["paths"]) and not _is_covered(file, kernel["guests"])


def _is_covered(file: str, patterns: list[str]) -> bool:
    """A pattern is a folder with all below it ("client/"), or files of one folder ("agents/*.py")."""
    return any(
        file.startswith(each) if each.endswith("/") else each.count("/") == file.count("/") and fnmatch(file, each)
        for each in patterns
    )


def _lines(path: Path) -> int:
    return path.read_text(encoding="utf-8").count("\n")


def main() -> None:
    """Print the limits beside what is measured; with `--write`, lower them."""
    text, now = BUDGET.read_text(encoding="utf-8"), measured()
    for table, numbers in limits().items():
        for name, limit in numbers.items():
            figure = now[table].get(name, 0)
            print(f"{table}.{name:<14} {figure:>8} of {limit:>8}{'   over' if figure > limit else ''}")
            if "--write" in sys.argv and figure < limit:
                head, heading, body = text.partition(f"\n[{table}]\n")
                body = re.sub(rf'^("?{re.escape(name)}"? = ){limit}\b', rf"\g<1>{figure}", body, count=1, flags=re.M)
                text = head + heading + body
    if "--write" in sys.argv:
        BUDGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
