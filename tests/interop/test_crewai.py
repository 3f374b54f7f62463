"""What CrewAI's client makes of Dragoman's server beyond the table: its settings as they are, polling, data, tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from interop.field import DRIVER_SECONDS
from interop.frameworks import CREWAI, converse, guarded, script, scripted

from dragoman import Agent, Context, Server
from dragoman.outputs import Reply
from dragoman.testing import served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(DRIVER_SECONDS + 10)]

replying = Agent("replying", description="Answers with messages")


@replying.skill
async def echo(ctx: Context) -> Reply:
    """Return the text, without a task."""
    return Reply(script.words(ctx.text)[1])


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    if CREWAI.peer.missing:
        pytest.skip(CREWAI.peer.missing)
    cases = "data_for_text_alone", "polled_question", "progress", "untrusted", "untrusted_message", "token", "long"
    folder = tmp_path_factory.mktemp("crewai")
    with served(Server(scripted(), replying)) as url, guarded(folder) as url_and_key:
        return converse(CREWAI, url, *cases, GUARDED=url_and_key)


def test_it_reads_data_when_it_says_that_it_takes_text_alone(lines: dict[str, Any]) -> None:
    assert json.loads(lines["data_for_text_alone"]["found"]) == script.DATA


def test_without_trust_its_model_is_shown_messages_and_no_artifacts(lines: dict[str, Any]) -> None:
    # By itself CrewAI has its model write the answer, and shows it the messages of the conversation.
    assert lines["untrusted"]["found"] == {"seen": False, "answer": script.ECHO}
    assert lines["untrusted_message"]["found"] == {"seen": True, "answer": script.ECHO}


def test_when_it_polls_its_model_is_not_shown_a_question_and_reads_it_before_the_answer(lines: dict[str, Any]) -> None:
    answer = f"{script.QUESTION} {script.greeting(script.USER)}"
    assert lines["polled_question"]["found"] == {"seen": False, "answer": answer}


def test_it_reads_every_piece_of_a_long_stream_once(lines: dict[str, Any]) -> None:
    assert lines["long"]["found"].split() == [piece.strip() for piece in script.pieces(script.MANY)]


def test_it_calls_an_agent_that_wants_a_token(lines: dict[str, Any]) -> None:
    assert lines["token"]["found"] == script.ECHO


def test_it_takes_progress_for_a_part_of_the_answer(lines: dict[str, Any]) -> None:
    assert lines["progress"]["found"] == [f"{script.PROGRESS} {script.ECHO}"] * 2
