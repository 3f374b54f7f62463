"""A file to send, from wherever it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.model.part import File, Part


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "report.pdf"
    path.write_bytes(b"%PDF")
    return path


def test_a_path_gives_content_name_and_type(path: Path) -> None:
    wanted = Part(raw=b"%PDF", filename="report.pdf", media_type="application/pdf")
    assert File(path).part() == wanted
    assert File(str(path)).part() == wanted


def test_a_path_is_read_when_the_part_is_made(path: Path) -> None:
    file = File(path)
    path.write_bytes(b"later")
    assert file.part().raw == b"later"
    path.unlink()
    with pytest.raises(OSError, match=r"report\.pdf"):
        file.part()


def test_names_and_types_can_be_given(path: Path) -> None:
    assert File(path, name="a.txt").part() == Part(raw=b"%PDF", filename="a.txt", media_type="text/plain")
    assert File(b"x", media_type="a/b").part() == Part(raw=b"x", media_type="a/b")
    assert File(b"x", name="a.png", media_type="a/b").part() == Part(raw=b"x", filename="a.png", media_type="a/b")


def test_bytes_need_no_name() -> None:
    assert File(b"").part() == Part(raw=b"")


@pytest.mark.parametrize("file", [File(url="https://example.org/a.png"), File("https://example.org/a.png")])
def test_a_link_stays_a_link(file: File) -> None:
    assert file.part() == Part(url="https://example.org/a.png", media_type="image/png")


@pytest.mark.parametrize(("args", "named"), [((), {}), ((b"x",), {"url": "https://example.org"})])
def test_exactly_one_source_is_wanted(args: Any, named: Any) -> None:
    with pytest.raises(ValueError, match="a path or bytes, or a url"):
        File(*args, **named)
