"""The benchmark notices a wrong answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bench.agents.words import chunk_text
from bench.replies import StreamCheck, Wrong, check_echo, check_page


def _reply(result: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}).encode()


def _task(state: str, text: str | None = None) -> dict[str, Any]:
    artifacts = [] if text is None else [{"artifactId": "a", "parts": [{"text": text}]}]
    return {"task": {"id": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{state}"}, "artifacts": artifacts}}


def _chunk(text: str, **more: Any) -> bytes:
    return _reply({"artifactUpdate": {"artifact": {"artifactId": "a", "parts": [{"text": text}]}, **more}})


def _status(state: str) -> bytes:
    return _reply({"statusUpdate": {"status": {"state": f"TASK_STATE_{state}"}}})


def test_an_echo_is_right_only_when_it_is_completed_and_says_the_same() -> None:
    check_echo(_reply(_task("COMPLETED", "hello")), "hello")
    for wrong in (_task("WORKING", "hello"), _task("COMPLETED", "hullo"), _task("COMPLETED")):
        with pytest.raises(Wrong):
            check_echo(_reply(wrong), "hello")
    with pytest.raises(Wrong, match="result"):
        check_echo(b'{"error": {"code": -32603}}', "hello")


def test_a_page_must_have_its_size_and_its_total() -> None:
    page = _reply({"tasks": [_task("COMPLETED")["task"]], "totalSize": 7})
    check_page(page, 1, 7)
    with pytest.raises(Wrong, match="not 1 of 8"):
        check_page(page, 1, 8)


def test_a_whole_stream_passes_with_and_without_the_text_repeated_at_its_end() -> None:
    for closing in ([], [_chunk(chunk_text(0) + chunk_text(1), lastChunk=True)], [_chunk("", lastChunk=True)]):
        check = StreamCheck(2, numbered=True)
        events = [_reply(_task("SUBMITTED")), _chunk(chunk_text(0)), _chunk(chunk_text(1), append=True), *closing]
        for number, data in enumerate([*events, _status("COMPLETED")], start=1):
            check.take(number, data)
        check.finish()
        assert check.seen == 2


def test_a_stream_with_a_gap_a_lost_chunk_or_no_end_is_wrong() -> None:
    check = StreamCheck(2, numbered=True)
    check.take(1, _reply(_task("SUBMITTED")))
    with pytest.raises(Wrong, match="event 3 after 1"):
        check.take(3, _chunk(chunk_text(0)))

    check = StreamCheck(2, numbered=False)
    check.take(None, _reply(_task("SUBMITTED")))
    with pytest.raises(Wrong, match="chunk 0"):
        check.take(None, _chunk(chunk_text(1)))

    check = StreamCheck(1, numbered=False)
    check.take(None, _reply(_task("SUBMITTED")))
    check.take(None, _chunk(chunk_text(0)))
    with pytest.raises(Wrong, match="last state"):
        check.finish()


def test_a_stream_that_begins_without_its_task_is_wrong() -> None:
    with pytest.raises(Wrong, match="first event"):
        StreamCheck(1, numbered=False).take(None, _chunk(chunk_text(0)))
