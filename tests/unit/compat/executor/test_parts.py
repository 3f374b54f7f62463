"""Parts as maps and back."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.compat.executor import (
    DataPart,
    FileBytes,
    FilePart,
    FileURI,
    Message,
    TextPart,
    part_from_map,
    part_from_model,
)
from dragoman.model.error import InvalidParams
from dragoman.model.part import Part

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=3)


@pytest.mark.requirement("S2-57", "S2-98")
def test_a_text_part_is_its_text_and_its_metadata() -> None:
    part = TextPart("hi", {"k": 1})
    assert part.to_map() == {"kind": "text", "text": "hi", "metadata": {"k": 1}}
    assert TextPart.from_map(part.to_map()) == ("ok", part)


@pytest.mark.requirement("S2-57")
def test_metadata_that_is_not_there_is_not_said() -> None:
    assert TextPart("hi").to_map() == {"kind": "text", "text": "hi"}


@pytest.mark.requirement("S2-58", "S2-60", "S2-98")
def test_a_file_part_may_hold_the_files_bytes() -> None:
    part = FilePart(FileBytes("aGk=", "a.txt", "text/plain"), {"k": 1})
    file = {"bytes": "aGk=", "name": "a.txt", "mimeType": "text/plain"}
    assert part.to_map() == {"kind": "file", "file": file, "metadata": {"k": 1}}
    assert FilePart.from_map(part.to_map()) == ("ok", part)


@pytest.mark.requirement("S2-58", "S2-61", "S2-98")
def test_a_file_part_may_hold_the_files_address() -> None:
    part = FilePart(FileURI("https://x.example/a", "a.txt", "text/plain"))
    file = {"uri": "https://x.example/a", "name": "a.txt", "mimeType": "text/plain"}
    assert part.to_map() == {"kind": "file", "file": file}
    assert FilePart.from_map(part.to_map()) == ("ok", part)


@pytest.mark.requirement("S2-60", "S2-61")
@pytest.mark.parametrize("file", [FileBytes("aGk="), FileURI("https://x.example/a")])
def test_a_files_name_and_media_type_may_be_missing(file: FileBytes | FileURI) -> None:
    assert len(file.to_map()) == 1
    assert type(file).from_map(file.to_map()) == ("ok", file)


@pytest.mark.requirement("S2-59", "S2-98")
@given(data=OBJECTS, metadata=st.none() | OBJECTS)
def test_a_data_part_comes_back_as_it_went(data: dict[str, Any], metadata: dict[str, Any] | None) -> None:
    part = DataPart(data, metadata)
    assert part.to_map()["kind"] == "data"
    assert part_from_map(part.to_map()) == ("ok", part)


@pytest.mark.requirement("S2-57", "S2-58", "S2-59")
@pytest.mark.parametrize(
    "part",
    [TextPart("hi", {"k": 1}), FilePart(FileBytes("aGk=")), FilePart(FileURI("https://x")), DataPart({"a": [1, None]})],
)
def test_the_kind_of_a_map_says_which_part_it_is(part: Any) -> None:
    assert part_from_map(part.to_map()) == ("ok", part)
    assert part_from_model(part.to_model()) == part


def test_an_unknown_kind_is_named() -> None:
    assert part_from_map({"kind": "video"}) == ("error", "unknown part kind: video")


def test_a_part_without_a_kind_is_refused() -> None:
    assert part_from_map({"text": "hi"}) == ("error", "missing part kind")


@pytest.mark.parametrize(
    ("map", "reason"),
    [
        ({"kind": "text"}, "text"),
        ({"kind": "text", "text": 1}, "text"),
        ({"kind": "data", "data": [1]}, "data"),
        ({"kind": "file", "file": {"name": "a"}}, "either bytes or uri"),
        ({"kind": "file", "file": {"bytes": "aGk=", "uri": "https://x"}}, "either bytes or uri"),
        ({"kind": "file", "file": {"bytes": "!"}}, "base64"),
        ({"kind": "file", "file": {"uri": 1}}, "uri"),
        ({"kind": "file", "file": "a.txt"}, "object"),
        ({"kind": "file"}, "file"),
    ],
)
def test_a_part_that_is_wrong_says_what_is_wrong(map: dict[str, Any], reason: str) -> None:
    status, said = part_from_map(map)
    assert status == "error"
    assert reason in str(said)


@pytest.mark.parametrize("part", [{"kind": "video"}, {"text": "hi"}, {"kind": "file", "file": {}}])
def test_a_message_names_the_part_that_is_wrong(part: dict[str, Any]) -> None:
    status, said = Message.from_map({"role": "user", "parts": [{"kind": "text", "text": "hi"}, part]})
    assert status == "error"
    assert "parts[1]" in str(said)


def test_a_map_that_is_no_object_is_refused() -> None:
    assert TextPart.from_map([1])[0] == "error"  # type: ignore[arg-type]


@given(content=st.binary())
def test_the_models_bytes_are_base64_here(content: bytes) -> None:
    part = part_from_model(Part(raw=content, filename="f"))
    assert isinstance(part, FilePart)
    assert isinstance(part.file, FileBytes)
    assert base64.b64decode(part.file.bytes) == content
    assert part.to_model() == Part(raw=content, filename="f")


def test_bytes_that_are_no_base64_do_not_become_a_models_part() -> None:
    with pytest.raises(InvalidParams):
        FilePart(FileBytes("!")).to_model()
