"""What LiteLLM's clients make of Dragoman's server beyond the table: data as text, tokens, a long stream."""

from __future__ import annotations

import json
from typing import Any

import pytest
from interop.field import DRIVER_SECONDS
from interop.frameworks import LITELLM, converse, guarded, script, scripted

from dragoman.testing import served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(DRIVER_SECONDS + 10)]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    if LITELLM.peer.missing:
        pytest.skip(LITELLM.peer.missing)
    folder = tmp_path_factory.mktemp("litellm")
    with served(scripted(), data_as_text=True) as url, guarded(folder) as url_and_key:
        return converse(LITELLM, url, "completion_data", "completion_progress", "token", "long", GUARDED=url_and_key)


def test_its_completion_reads_data_that_is_sent_as_text(lines: dict[str, Any]) -> None:
    assert json.loads(lines["completion_data"]["found"]) == script.DATA


def test_it_calls_an_agent_that_wants_a_token(lines: dict[str, Any]) -> None:
    assert lines["token"]["found"] == [script.ECHO, script.ECHO]


def test_it_reads_every_piece_of_a_long_stream_once(lines: dict[str, Any]) -> None:
    assert lines["long"]["found"] == "".join(script.pieces(script.MANY))


def test_its_completion_takes_progress_for_a_piece_of_a_stream(lines: dict[str, Any]) -> None:
    assert lines["completion_progress"]["found"] == [script.PROGRESS + script.ECHO, script.ECHO]
