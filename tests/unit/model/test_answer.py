"""Reading a Task and a Message, in the same words."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.model.error import InputRequired, TaskCanceled, TaskEnded, TaskFailed, TaskRejected
from dragoman.model.message import Message
from dragoman.model.part import Part
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

JSON = "application/json"


def message(*parts: Part) -> Message:
    return Message("m", Role.AGENT, parts, "c")


def task(*parts: Part, state: State = State.COMPLETED, says: str | None = None) -> Task:
    artifacts = tuple(Artifact(f"a{place}", (part,)) for place, part in enumerate(parts))
    return Task("t", "c", TaskStatus(state, None if says is None else message(Part(text=says))), artifacts)


@pytest.fixture(params=[message, task])
def answer(request: pytest.FixtureRequest) -> Any:
    return request.param


# What both have


def test_text_is_all_text_joined(answer: Any) -> None:
    found = answer(Part(text="a"), Part(data=1), Part(text="b"))
    assert found.text == "ab"
    assert answer(Part(data=1)).text == ""


def test_data_is_the_first_data_or_json_text(answer: Any) -> None:
    assert answer(Part(text="a"), Part(data={"n": 1}), Part(data=2)).data == {"n": 1}
    assert answer(Part(text="7", media_type=JSON), Part(data=2)).data == 7
    assert answer(Part(text="7")).data is None


def test_files_are_bytes_and_links(answer: Any) -> None:
    files = [Part(raw=b"x"), Part(url="https://example.org")]
    assert answer(Part(text="a"), *files).files == files


@pytest.mark.parametrize(
    ("parts", "value"),
    [
        ([Part(text="a"), Part(text="b")], "ab"),
        ([Part(data={"n": 1})], {"n": 1}),
        ([Part(text="1.0", media_type=JSON)], 1.0),
        ([Part(text="false", media_type=JSON)], False),
        ([Part(raw=b"x")], b"x"),
        ([Part(url="https://example.org")], "https://example.org"),
        ([Part(text="a"), Part(data=None)], None),
        ([], None),
    ],
)
def test_the_value_is_what_a_function_would_have_returned(answer: Any, parts: list[Part], value: Any) -> None:
    found = answer(*parts).value
    assert (found, type(found)) == (value, type(value))


# A task


def test_a_task_without_artifacts_speaks_by_its_status() -> None:
    assert task(says="hello").text == "hello"
    assert task(Part(text="artifact"), says="status").text == "artifact"
    assert task().parts == ()


@pytest.mark.parametrize("state", list(State))
def test_only_a_waiting_task_has_a_question_and_only_an_unhappy_one_an_error(state: State) -> None:
    found = task(state=state, says="words")
    assert found.state is state
    assert found.question == ("words" if state in (State.INPUT_REQUIRED, State.AUTH_REQUIRED) else None)
    assert found.error == ("words" if state in (State.FAILED, State.REJECTED) else None)
    assert task(state=State.INPUT_REQUIRED).question == ""
    assert task(state=State.FAILED).error == ""


@pytest.mark.parametrize(
    ("state", "error"),
    [(State.FAILED, TaskFailed), (State.REJECTED, TaskRejected), (State.CANCELED, TaskCanceled)],
)
def test_a_task_that_ended_badly_raises_with_the_task(state: State, error: type[TaskEnded]) -> None:
    found = task(state=state, says="because")
    with pytest.raises(error) as caught:
        found.raise_for_state()
    assert caught.value.task is found
    assert str(caught.value) == ("the task was canceled" if state is State.CANCELED else "because")
    with pytest.raises(TaskEnded, match="the task"):
        task(state=state).raise_for_state()


@pytest.mark.parametrize("state", [State.INPUT_REQUIRED, State.AUTH_REQUIRED])
def test_a_task_that_waits_raises_its_question(state: State) -> None:
    found = task(state=state, says="how many?")
    with pytest.raises(InputRequired) as caught:
        found.raise_for_state()
    assert (caught.value.question, caught.value.task) == ("how many?", found)
    with pytest.raises(InputRequired, match="waits for an answer"):
        task(state=state).raise_for_state()


@pytest.mark.parametrize("state", [State.COMPLETED, State.WORKING, State.SUBMITTED])
def test_a_task_that_goes_well_raises_nothing(state: State) -> None:
    task(state=state).raise_for_state()


# A message


def test_a_message_is_a_finished_exchange() -> None:
    found = message(Part(text="hi"))
    assert (found.state, found.question, found.error) == (State.COMPLETED, None, None)
    found.raise_for_state()


# States


def test_four_states_are_final_and_two_wait() -> None:
    assert [state.name for state in State if state.final] == ["COMPLETED", "FAILED", "CANCELED", "REJECTED"]
    assert [state.name for state in State if state.waiting] == ["INPUT_REQUIRED", "AUTH_REQUIRED"]
    assert all(state.value == f"TASK_STATE_{state.name}" for state in State)
