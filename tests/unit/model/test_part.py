"""A part holds exactly one thing."""

from __future__ import annotations

import tempfile
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.model.json import encode
from dragoman.model.part import Part, safe_filename

CONTENT: dict[str, Any] = {"text": "t", "raw": b"r", "url": "https://example.org", "data": {"k": 1}}


@pytest.mark.parametrize("kind", CONTENT)
def test_the_kind_of_a_part_is_the_one_of_its_four_members(kind: str) -> None:
    assert Part(**{kind: CONTENT[kind]}).kind == kind


@pytest.mark.parametrize("kinds", [(), *combinations(CONTENT, 2), tuple(CONTENT)], ids=str)
def test_none_or_several_of_the_four_are_refused(kinds: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="exactly one of text, raw, url and data"):
        Part(**{kind: CONTENT[kind] for kind in kinds})


@pytest.mark.parametrize("body", [b"{}", b'{"text":"a","data":1}', b'{"filename":"x"}', b'{"raw":"AA==","url":"u"}'])
def test_the_rule_holds_for_what_is_read_too(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError, match="exactly one"):
        msgspec.json.decode(body, type=Part)


def test_empty_content_is_content() -> None:
    assert Part(text="").kind == "text"
    assert Part(raw=b"").kind == "raw"
    assert Part(data=None).kind == "data"
    assert msgspec.json.decode(b'{"data":null}', type=Part) == Part(data=None)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(json_values)
def test_data_comes_back_as_it_went_in(value: Any) -> None:
    part = Part(data=value, metadata={"m": value})
    body = encode(part)
    again = msgspec.json.decode(body, type=Part)
    assert again == part
    assert encode(again) == body  # the order of keys, and 1.0 apart from 1
    assert [type(again.data)] == [type(value)]


@given(st.text(), st.none() | st.text(min_size=1), st.none() | st.text(min_size=1))
def test_text_with_its_names_comes_back(text: str, filename: str | None, media_type: str | None) -> None:
    part = Part(text=text, filename=filename, media_type=media_type)
    assert msgspec.json.decode(encode(part), type=Part) == part


@given(st.binary())
def test_bytes_travel_as_base64(data: bytes) -> None:
    part = Part(raw=data)
    assert msgspec.json.decode(encode(part), type=Part) == part
    assert msgspec.json.decode(encode(part))["raw"].isascii()


def test_absent_fields_are_left_out() -> None:
    assert encode(Part(text="t")) == b'{"text":"t"}'
    assert encode(Part(raw=b"\xff", filename="a", media_type="b/c")) == (
        b'{"raw":"/w==","filename":"a","mediaType":"b/c"}'
    )


# -- files -----------------------------------------------------------------------------------------------------------


def file(name: str | None, content: bytes = b"x", media_type: str | None = None) -> Part:
    return Part(raw=content, filename=name, media_type=media_type)


def test_a_file_has_a_name_and_bytes() -> None:
    part = file("plan.md", b"# Plan")
    assert (part.name, part.bytes) == ("plan.md", b"# Plan")
    assert file(None).name is None


def test_text_and_data_have_bytes_too() -> None:
    assert Part(text="Olá").bytes == "Olá".encode()
    assert Part(text="\ud800").bytes == b"?"
    assert Part(data={"a": 1}).bytes == b'{"a":1}'


def test_a_link_says_where_its_content_is(tmp_path: Path) -> None:
    part = Part(url="https://example.org/plan.md", filename="plan.md")
    with pytest.raises(ValueError, match=r"not in the message, but at https://example\.org/plan\.md: download it"):
        _ = part.bytes
    with pytest.raises(ValueError, match="download it"):
        part.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_saved_at_the_path_that_is_given(tmp_path: Path) -> None:
    path = tmp_path / "mine.md"
    assert file("plan.md", b"old and long").save(path) == path
    assert file("plan.md", b"new").save(str(path)) == path
    assert path.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["mine.md"]


def test_in_a_folder_a_file_keeps_its_name_and_overwrites_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (folder := tmp_path / "folder").mkdir()
    (folder / "plan-1.md").symlink_to(outside)
    saved = [file("trip/plan.md", content).save(folder) for content in (b"1", b"2", b"3")]
    assert [path.name for path in saved] == ["plan.md", "plan-2.md", "plan-3.md"]
    assert [path.read_bytes() for path in saved] == [b"1", b"2", b"3"]
    assert not outside.exists()
    assert [file("Makefile").save(folder).name for _ in range(2)] == ["Makefile", "Makefile-1"]


def test_a_path_that_ends_with_a_slash_is_a_folder_to_create(tmp_path: Path) -> None:
    path = file("plan.md").save(f"{tmp_path}/new/folder/")
    assert path == tmp_path / "new" / "folder" / "plan.md"
    with pytest.raises(FileNotFoundError):
        file("plan.md").save(tmp_path / "none" / "plan.md")


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (file(None, media_type="application/pdf"), "file.pdf"),
        (file("..", media_type="text/markdown; charset=utf-8"), "file.md"),
        (file(None), "file"),
        (file(None, media_type="not a type"), "file"),
        (Part(text="x"), "file.txt"),
        (Part(data=1), "file.json"),
    ],
)
def test_a_file_without_a_name_gets_one_of_its_type(tmp_path: Path, part: Part, name: str) -> None:
    assert part.save(tmp_path).name == name


@pytest.mark.parametrize(
    ("given", "safe"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\fox\\plan.txt", "plan.txt"),
        ("plan.txt:hidden", "plan.txt_hidden"),
        (".bashrc", "bashrc"),
        ("-rf *", "rf _"),
        ("--output=x", "output=x"),
        ("..", ""),
        ("a/", ""),
        ("", ""),
        (None, ""),
        ("a\nb\0c\x1b]0;x\x07.txt", "a_b_c__0_x_.txt"),
        ("gpj\u202e.exe", "gpj_.exe"),
        ("name. . .", "name"),
        (". -x", "x"),
        ("CON", "_CON"),
        ("nul.txt", "_nul.txt"),
        ("com1.tar.gz", "_com1.tar.gz"),
        ("Lpt9 .txt", "_Lpt9 .txt"),
        ("console.txt", "console.txt"),
        ("cafe\u0301.txt", "caf\u00e9.txt"),
        ("हिन्दी.txt", "हिन्दी.txt"),
        ("x" * 300 + ".pdf", "x" * 196 + ".pdf"),
        ("x." + "y" * 300, "x." + "y" * 198),
        ("/x" + "y" * 100_000, "y" * 200),
    ],
)
def test_a_foreign_name_is_made_safe(given: str | None, safe: str) -> None:
    assert safe_filename(given) == safe


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text() | st.sampled_from(["..", "/", "a/../..", "\\", "~", "link", "con", "a.b"]), max_size=4))
def test_files_of_every_name_are_saved_within_the_folder(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place:
        (folder := Path(place, "folder")).mkdir()
        (folder / "link").symlink_to("..")
        saved = [file(name, str(number).encode()).save(folder) for number, name in enumerate(names)]
        assert [path.name for path in Path(place).iterdir()] == ["folder"]
        assert {*folder.iterdir()} == {*saved, folder / "link"}
        assert [path.read_bytes().decode() for path in saved] == [str(number) for number in range(len(names))]
        assert all(path.name[0] not in ".-" and len(path.name.encode()) < 210 for path in saved)
