"""What a remote agent asks, and how it gets its answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from unit.agents.adk import remote_talk as talks

from dragoman import Context, Part
from dragoman.outputs import Ask

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

Talk, answer, text_of, texts_of = talks.Talk, talks.answer, talks.text_of, talks.texts_of

BOTH = pytest.mark.parametrize("streaming", [False, True])


async def asks(ctx: Context) -> AsyncGenerator[Any, None]:
    if ctx.resume is None:
        yield "Booking. "
        yield Ask("Which city?", auth=ctx.text == "auth", forwards=True)
    else:
        yield f"To {ctx.resume.data or ctx.resume.text}!"


@BOTH
@pytest.mark.parametrize("by_call", [False, True])
async def test_a_question_is_a_long_running_call_that_words_or_its_response_answer(
    talk_with: Any, streaming: bool, by_call: bool
) -> None:
    talk = talk_with(asks, streaming=streaming)
    question = (await talk.say("book"))[-1]
    (call,) = question.get_function_calls()
    assert question.long_running_tool_ids == {call.id}
    assert (call.name, call.args) == (
        "mock_function_call_for_required_user_input",
        {"input_required": "Which city?"},
    )
    assert text_of(question) == "Which city?" and question.is_final_response()
    events = await talk.say(answer(question, "Rome") if by_call else "Rome")
    # What was said before the question is not said again.
    assert texts_of(events) == ["To Rome!"]
    assert texts_of(await talk.kept()) == ["Booking. ", "Which city?", "To Rome!"]
    ids = {event.custom_metadata["a2a:task_id"] for event in await talk.kept()}
    assert len(ids) == 1


@BOTH
async def test_a_question_for_credentials_is_another_call_and_data_answer_as_data(
    talk_with: Any, streaming: bool
) -> None:
    talk = talk_with(asks, streaming=streaming)
    question = (await talk.say("auth"))[-1]
    (call,) = question.get_function_calls()
    assert (call.name, call.args) == ("mock_function_call_for_required_user_auth", {"auth_required": "Which city?"})
    assert question.custom_metadata["a2a:state"] == "TASK_STATE_AUTH_REQUIRED"
    assert texts_of(await talk.say(answer(question, {"code": 7}))) == ["To {'code': 7}!"]


@BOTH
@pytest.mark.parametrize("by_call", [False, True])
async def test_a_task_that_went_on_by_itself_tells_what_has_become_of_it(
    remote: Any, streaming: bool, by_call: bool
) -> None:
    far = remote(asks)
    talk = Talk(far, streaming=streaming)
    question = (await talk.say("auth"))[-1]
    # Somebody else answers, as a page for logging in does.
    await far._clients.client().send("Oslo", task=question.custom_metadata["a2a:task_id"])
    if by_call:
        assert texts_of(await talk.say(answer(question, "done"))) == ["Booking. To Oslo!"]
        assert texts_of(await talk.say("book"))[-1] == "Which city?"
    else:
        # Words may be about something else. They are said, beside what became of the task.
        events = await talk.say("book another")
        assert texts_of(events) == ["Booking. To Oslo!", "Booking. ", "Which city?"]
        assert [event.turn_complete for event in events if not event.partial] == [None, None, True]
        assert texts_of(await talk.say("Rome")) == ["To Rome!"]


@BOTH
async def test_a_message_after_a_task_was_canceled_elsewhere_is_sent(remote: Any, streaming: bool) -> None:
    received: list[tuple[str, str]] = []

    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        received.append((ctx.context_id, ctx.text))
        yield Ask("Who?") if ctx.text == "hello" else "Sunny."

    far = remote(run)
    talk = Talk(far, streaming=streaming)
    question = (await talk.say("hello"))[-1]
    await far._clients.client().cancel_task(question.custom_metadata["a2a:task_id"])
    # An answer to the question has nobody to go to.
    (late,) = await talk.say(answer(question, "Ann"))
    assert late.error_message == "remote agent canceled the task"
    question = (await talk.say("hello"))[-1]
    await far._clients.client().cancel_task(question.custom_metadata["a2a:task_id"])
    (event,) = [event for event in await talk.say("And the weather?") if not event.partial]
    assert (text_of(event), event.error_code) == ("Sunny.", None)
    assert [text for _, text in received] == ["hello", "hello", "And the weather?"]
    assert len({context for context, _ in received}) == 1


@BOTH
async def test_a_task_that_is_not_known_any_more_is_no_reason_to_fail_for_ever(remote: Any, streaming: bool) -> None:
    far = remote(asks)
    talk = Talk(far, streaming=streaming)
    await talk.say("book")
    # In this process the tasks go with the connection.
    await far.close()
    assert texts_of(await talk.say("book again"))[-1] == "Which city?"


@BOTH
async def test_the_pending_call_of_an_adk_agent_stays_what_it_is(talk_with: Any, streaming: bool) -> None:
    received: list[Part] = []

    async def run(ctx: Context) -> AsyncGenerator[Any, None]:
        if ctx.resume is None:
            data = {"id": "call-1", "name": "approve", "args": {"amount": 3}}
            pending = Part(data=data, metadata={"adk_type": "function_call", "adk_is_long_running": True})
            waits = {"id": "call-1", "name": "approve", "response": {"status": "pending"}}
            response = Part(data=waits, metadata={"adk_type": "function_response"})
            yield Ask("Approve?", details=(pending, response))
        else:
            received.extend(ctx.message.parts)
            yield "Approved."

    talk = talk_with(run, streaming=streaming)
    (question,) = await talk.say("buy")
    (call,) = question.get_function_calls()
    assert (call.id, call.name, call.args) == ("call-1", "approve", {"amount": 3})
    assert question.long_running_tool_ids == {"call-1"} and not question.get_function_responses()
    assert texts_of(await talk.say(answer(question, "yes"))) == ["Approved."]
    (response,) = received
    assert (response.metadata or {})["adk_type"] == "function_response"
    assert response.data == {"id": "call-1", "name": "approve", "response": {"result": "yes"}}
