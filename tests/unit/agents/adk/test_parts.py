"""Parts of messages and parts of ADK: every kind, both ways."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.adk.parts import content_of, from_genai, parts_of_content, to_genai
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.state import Role

SIGNED = base64.b64encode(b"signed").decode()
CALL = {"id": "c1", "name": "add", "args": {"a": 2, "b": 3}}
RESPONSE = {"id": "c1", "name": "add", "response": {"sum": 5}}
CODE = {"code": "1+1", "language": "PYTHON"}
RAN = {"outcome": "OUTCOME_OK", "output": "2"}

# One row for each row of the tables: ADK's part, and ours.
ROWS: dict[str, tuple[types.Part, Part]] = {
    "text": (types.Part(text="hi"), Part(text="hi")),
    "thought": (types.Part(text="hm", thought=True), Part(text="hm", metadata={"adk_thought": True})),
    "signed text": (
        types.Part(text="hi", thought_signature=b"signed"),
        Part(text="hi", metadata={"adk_thought_signature": SIGNED}),
    ),
    "bytes": (
        types.Part(inline_data=types.Blob(data=b"png", mime_type="image/png", display_name="a.png")),
        Part(raw=b"png", media_type="image/png", filename="a.png"),
    ),
    "video": (
        types.Part(
            inline_data=types.Blob(data=b"mp4", mime_type="video/mp4"),
            video_metadata=types.VideoMetadata(start_offset="1s", end_offset="2s"),
        ),
        Part(
            raw=b"mp4",
            media_type="video/mp4",
            metadata={"adk_video_metadata": {"startOffset": "1s", "endOffset": "2s"}},
        ),
    ),
    "resolution": (
        types.Part(
            file_data=types.FileData(file_uri="gs://b/a.png", mime_type="image/png"),
            media_resolution=types.PartMediaResolution(level=types.PartMediaResolutionLevel.MEDIA_RESOLUTION_LOW),
        ),
        Part(
            url="gs://b/a.png",
            media_type="image/png",
            metadata={"adk_media_resolution": {"level": "MEDIA_RESOLUTION_LOW"}},
        ),
    ),
    "link": (
        types.Part(
            file_data=types.FileData(file_uri="https://example.org/a", mime_type="image/png", display_name="a.png")
        ),
        Part(url="https://example.org/a", media_type="image/png", filename="a.png"),
    ),
    "data": (
        types.Part(
            inline_data=types.Blob(data=b'<a2a_datapart_json>{"n":1}</a2a_datapart_json>', mime_type="text/plain")
        ),
        Part(data={"n": 1}),
    ),
    "function call": (
        types.Part(function_call=types.FunctionCall(**CALL)),
        Part(data=CALL, metadata={"adk_type": "function_call"}),
    ),
    "pending function call": (
        types.Part(function_call=types.FunctionCall(**CALL), part_metadata={"adk_is_long_running": True}),
        Part(data=CALL, metadata={"adk_type": "function_call", "adk_is_long_running": True}),
    ),
    "signed function call": (
        types.Part(function_call=types.FunctionCall(**CALL), thought_signature=b"signed"),
        Part(data=CALL, metadata={"adk_type": "function_call", "adk_thought_signature": SIGNED}),
    ),
    "function response": (
        types.Part(function_response=types.FunctionResponse(**RESPONSE)),
        Part(data=RESPONSE, metadata={"adk_type": "function_response"}),
    ),
    "code": (
        types.Part(executable_code=types.ExecutableCode(**CODE)),
        Part(data=CODE, metadata={"adk_type": "executable_code"}),
    ),
    "code result": (
        types.Part(code_execution_result=types.CodeExecutionResult(**RAN)),
        Part(data=RAN, metadata={"adk_type": "code_execution_result"}),
    ),
    "server tool": (
        types.Part(tool_call=types.ToolCall(id="t", args={"q": 1})),
        Part(data={"id": "t", "args": {"q": 1}}, metadata={"adk_type": "tool_call"}),
    ),
    "server tool's response": (
        types.Part(tool_response=types.ToolResponse(id="t", response={"r": 1})),
        Part(data={"id": "t", "response": {"r": 1}}, metadata={"adk_type": "tool_response"}),
    ),
    "anything else": (
        types.Part(audio_transcription=types.Transcription(text="words")),
        Part(data={"audioTranscription": {"text": "words"}}, metadata={"adk_type": "part"}),
    ),
    "metadata of others": (
        types.Part(text="hi", part_metadata={"mine": 1}),
        Part(text="hi", metadata={"mine": 1}),
    ),
}
each_row = pytest.mark.parametrize(("theirs", "ours"), ROWS.values(), ids=ROWS.keys())


@pytest.mark.requirement("S2-51", "S2-114")
@each_row
def test_each_kind_of_part_goes_out(theirs: types.Part, ours: Part) -> None:
    assert from_genai(theirs) == ours


@pytest.mark.requirement("S2-51", "S2-114")
@each_row
def test_each_kind_of_part_comes_in(theirs: types.Part, ours: Part) -> None:
    assert to_genai(ours).model_dump(exclude_none=True) == theirs.model_dump(exclude_none=True)


@pytest.mark.parametrize(
    "empty",
    [
        types.Part(),
        types.Part(text=""),
        types.Part(inline_data=types.Blob(mime_type="image/png")),
        types.Part(thought=True),
    ],
)
def test_an_empty_part_is_none(empty: types.Part) -> None:
    assert from_genai(empty) is None


def test_data_as_protocol_0_3_wraps_it_is_read() -> None:
    body = b'<a2a_datapart_json>{"data":{"n":1},"kind":"data","metadata":{"k":"v"}}</a2a_datapart_json>'
    part = types.Part(inline_data=types.Blob(data=body, mime_type="text/plain"))
    assert from_genai(part) == Part(data={"n": 1}, metadata={"k": "v"})


def test_data_that_looks_like_wrapped_data_is_not_unwrapped() -> None:
    ours = Part(data={"kind": "data", "data": 1})
    assert from_genai(to_genai(ours)) == ours


def test_a_text_file_that_only_looks_like_data_stays_a_file() -> None:
    body = b"<a2a_datapart_json>{broken</a2a_datapart_json>"
    part = types.Part(inline_data=types.Blob(data=body, mime_type="text/plain"))
    assert from_genai(part) == Part(raw=body, media_type="text/plain")


def test_data_that_only_says_it_is_a_function_call_is_data() -> None:
    made = to_genai(Part(data=["no", "call"], metadata={"adk_type": "function_call"}))
    assert made.function_call is None
    assert made.inline_data is not None
    assert b'["no","call"]' in (made.inline_data.data or b"")


@pytest.mark.parametrize(
    "metadata", [{"adk_video_metadata": "nonsense"}, {"adk_thought_signature": "not base64!"}, {"adk_thought": "yes"}]
)
def test_metadata_that_makes_no_sense_does_no_harm(metadata: dict[str, Any]) -> None:
    made = to_genai(Part(raw=b"x", media_type="video/mp4", metadata=metadata))
    assert made.part_metadata == metadata
    assert (made.video_metadata, made.thought_signature, made.thought) == (None, None, None)


@pytest.mark.filterwarnings("ignore:GOOGLE_GENAI_USE_VERTEXAI:DeprecationWarning")
def test_on_vertex_parts_have_no_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "1")
    assert to_genai(Part(text="hi", metadata={"mine": 1})).part_metadata is None


@pytest.mark.parametrize(
    ("part", "media_type"),
    [
        (Part(raw=b"x", filename="a.png"), "image/png"),
        (Part(raw=b"x"), "application/octet-stream"),
        (Part(url="https://example.org/a.pdf"), "application/pdf"),
    ],
)
def test_a_file_without_a_type_gets_the_one_its_name_tells(part: Part, media_type: str) -> None:
    made = to_genai(part)
    file = made.inline_data or made.file_data
    assert file is not None
    assert file.mime_type == media_type


@pytest.mark.requirement("S2-31", "S2-51")
@pytest.mark.parametrize(("ours", "theirs"), [(Role.USER, "user"), (Role.AGENT, "model")])
def test_messages_become_content(ours: Role, theirs: str) -> None:
    message = Message("m1", ours, (Part(text="hi"), Part(data={"n": 1})))
    content = content_of(message)
    assert content.role == theirs
    assert parts_of_content(content) == message.parts
    assert parts_of_content(None) == ()


# -- any part ----------------------------------------------------------------------------------------------------------

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.none() | st.text(min_size=1, max_size=10)
media_types = st.sampled_from(["image/png", "text/plain", "application/json", "video/mp4"])
whole = st.integers(-(2**53), 2**53)
json = st.recursive(
    st.none() | st.booleans() | whole | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=10,
)
objects = st.dictionaries(text, json, max_size=3)
metadata = st.none() | st.dictionaries(st.sampled_from(["mine", "yours"]), json, min_size=1)


def typed(kind: str, field: str) -> st.SearchStrategy[Part]:
    data = st.fixed_dictionaries({"id": st.text(min_size=1), "name": st.text(min_size=1), field: objects})
    return st.builds(lambda value: Part(data=value, metadata={"adk_type": kind}), data)


any_part = st.one_of(
    st.builds(lambda words, more: Part(text=words, metadata=more), st.text(min_size=1, max_size=20), metadata),
    st.builds(lambda words: Part(text=words, metadata={"adk_thought": True}), st.text(min_size=1)),
    st.builds(
        lambda raw, kind, name, more: Part(raw=raw, media_type=kind, filename=name, metadata=more),
        st.binary(max_size=20),
        media_types,
        names,
        metadata,
    ),
    st.builds(
        lambda kind, name, more: Part(url="https://example.org/x", media_type=kind, filename=name, metadata=more),
        media_types,
        names,
        metadata,
    ),
    st.builds(lambda value, more: Part(data=value, metadata=more), json, metadata),
    typed("function_call", "args"),
    typed("function_response", "response"),
)


@pytest.mark.requirement("S2-114")
@given(any_part)
def test_a_part_that_goes_through_adk_comes_back_as_it_was(part: Part) -> None:
    back = from_genai(to_genai(part))
    assert back == part
    # Equal is not enough: 1 equals 1.0, and is written otherwise.
    assert msgspec.json.encode(back, order="sorted") == msgspec.json.encode(part, order="sorted")


@pytest.mark.requirement("S2-114")
@given(any_part)
def test_a_part_of_adk_that_goes_through_the_protocol_comes_back_as_it_was(part: Part) -> None:
    theirs = to_genai(part)
    ours = from_genai(theirs)
    assert ours is not None
    assert to_genai(ours).model_dump(exclude_none=True) == theirs.model_dump(exclude_none=True)
