"""Reading a Task and a Message, in the same words."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.model.error import InputRequired, TaskCanceled, TaskEnded, TaskFailed, TaskRejected
from dragoman.model.message import PROGRESS_KEY, Message
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
    assert found.text == ("ab" if isinstance(found, Task) else "a\n\nb")
    assert answer(Part(data=1)).text == ""


@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        (["For context:", "a cat"], "For context:\n\na cat"),
        (["a\n", "b"], "a\n\nb"),
        (["a\n\n", "b"], "a\n\nb"),
        (["a\n", "\nb"], "a\n\nb"),
        (["a\n\n\n", "b"], "a\n\n\nb"),
        (["a", "", "b"], "a\n\nb"),
        (["", "a", ""], "a"),
        (["", ""], ""),
        (["\n", "a"], "\n\na"),
    ],
)
def test_the_texts_of_a_message_are_paragraphs_and_those_of_an_artifact_are_one_text(
    texts: list[str], joined: str
) -> None:
    parts = tuple(Part(text=each) for each in texts)
    assert message(*parts).text == joined
    status = TaskStatus(State.COMPLETED, message(*parts))
    assert Task("t", "c", status).text == joined
    assert Task("t", "c", status, (Artifact("a", parts),)).text == "".join(texts)


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
        ([Part(text="a")], "a"),
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


def test_the_text_of_a_task_without_artifacts_is_that_of_its_status() -> None:
    assert task(says="hello").text == "hello"
    assert task(Part(text="artifact"), says="status").text == "artifact"
    assert task().parts == ()


ASKED = Message("u", Role.USER, (Part(text="hello"),))


def remark(text: str, metadata: dict[str, Any] | None = None) -> Message:
    return Message("m", Role.AGENT, (Part(text=text), Part(raw=b"x")), metadata=metadata)


def ended(*history: Message, state: State = State.COMPLETED) -> Task:
    return Task("t", "c", TaskStatus(state), history=history)


def test_an_answer_that_is_only_in_the_history_is_the_answer() -> None:
    found = ended(remark("before"), ASKED, remark("one"), remark("two"))
    assert (found.text, found.value) == ("one\n\ntwo", b"x")
    assert found.parts == (*remark("one").parts, *remark("two").parts)
    assert len(found.files) == 2
    empty = TaskStatus(State.COMPLETED, Message("m", Role.AGENT, ()))
    assert Task("t", "c", empty, history=(ASKED, remark("one"))).text == "one"


def test_a_status_or_an_artifact_counts_more_than_the_history() -> None:
    status = TaskStatus(State.COMPLETED, message(Part(text="status")))
    assert Task("t", "c", status, history=(ASKED, remark("history"))).text == "status"
    assert Task("t", "c", TaskStatus(State.COMPLETED), (Artifact("a", ()),), (ASKED, remark("history"))).text == ""


@pytest.mark.parametrize("mark", [True, {"done": 1, "total": 2}])
def test_progress_is_never_an_answer(mark: Any) -> None:
    marked = remark("50 %", {PROGRESS_KEY: mark})
    assert ended(ASKED, marked).parts == ()
    assert ended(ASKED, marked, remark("answer"), marked).text == "answer"


def test_messages_before_the_last_one_of_the_caller_are_no_answer() -> None:
    assert ended(ASKED, remark("how many?"), ASKED).parts == ()


@pytest.mark.parametrize("state", [state for state in State if state is not State.COMPLETED])
def test_only_a_completed_task_has_its_answer_in_the_history(state: State) -> None:
    assert ended(ASKED, remark("so far"), state=state).parts == ()


@pytest.mark.parametrize("part", [None, Part(text="")])
def test_a_question_that_is_only_in_an_artifact_is_the_question(part: Part | None) -> None:
    status = TaskStatus(State.INPUT_REQUIRED, None if part is None else message(part))
    interrupt = Artifact("b", (Part(data={"id": "i", "value": "Which size?"}),))
    so_far = Artifact("a", (Part(text="so far"),))
    assert Task("t", "c", status, (so_far, interrupt)).question == '{"id":"i","value":"Which size?"}'
    assert Task("t", "c", status, (Artifact("a", (Part(text="Which "), Part(text="size?"))),)).question == "Which size?"
    asked = TaskStatus(State.INPUT_REQUIRED, message(Part(data={"call": "pay"})))
    assert Task("t", "c", asked, (so_far,)).question == '{"call":"pay"}'


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
    with pytest.raises(InputRequired, match="is waiting for an answer"):
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
