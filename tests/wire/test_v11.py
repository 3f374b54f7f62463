"""How a caller asks for A2A 1.1; what it then gets is in tests/contract/bindings/test_generations.py."""

from __future__ import annotations

from typing import Any

import pytest

SPEAKERS = ["1.1-rpc", "1.1-rest"]


def test_a_bare_message_has_none(speaker: Any) -> None:
    assert "generation" not in speaker.send(tool="reply").text


@pytest.mark.parametrize("speaker", ["1.0-rpc", "1.0-rest"], indirect=True)
@pytest.mark.parametrize(("version", "counts"), [("1.1", True), ("1.1.0", True), ("1.0", False), ("1.0.1", False)])
def test_the_version_is_asked_for_in_a_header_or_in_the_query(speaker: Any, version: str, counts: bool) -> None:
    header = speaker.send("hi", headers={"A2A-Version": version})
    method, path, options = speaker.spell("send", speaker.params("hi"))
    del options["headers"]["A2A-Version"]
    query = speaker.wire.request(method, f"{path}?A2A-Version={version}", **options)
    assert [("generation" in answer.result["task"]) for answer in (header, query)] == [counts, counts]


def test_the_header_counts_before_the_query(wire: Any) -> None:
    speaker = wire.speaker("1.0-rest")
    answer = wire.rest("POST", "/message:send?A2A-Version=1.1", speaker.params("hi"), **{"A2A-Version": "1.0"})
    assert "generation" not in answer.result["task"]
