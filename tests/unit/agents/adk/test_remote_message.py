"""What a remote agent is told of a session: what it needs, and no secrets of others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from google.adk.events import Event
from google.adk.events.event_actions import EventActions
from google.genai import types
from msgspec.structs import replace
from pydantic import BaseModel

from dragoman import Part
from dragoman.agents.adk.remote.message import NodeInput, OutgoingMessage, live_events, node_content, outgoing_message
from dragoman.model.state import State

CREDENTIAL = {"exchanged_auth_credential": {"oauth2": {"access_token": "s3cret"}}}


def event_of(author: str, *parts: Any, **more: Any) -> Event:
    content = types.Content(parts=[types.Part(text=part) if isinstance(part, str) else part for part in parts])
    return Event(author=author, content=content, **more)


def own(*parts: Any, state: State = State.COMPLETED, **more: Any) -> Event:
    metadata = {"a2a:context_id": "c1", "a2a:task_id": "t1", "a2a:state": state.value}
    return event_of("far", *parts, custom_metadata=metadata, **more)


def outgoing(*events: Event, branch: str | None = None, state: Any = None, given: Any = None) -> OutgoingMessage | None:
    session = SimpleNamespace(events=list(events), state=state or {})
    ctx: Any = SimpleNamespace(session=session, branch=branch, user_content=given)
    return outgoing_message(ctx, "far")


def called(name: str, id: str = "1", **arguments: Any) -> types.Part:
    return types.Part(function_call=types.FunctionCall(id=id, name=name, args=arguments))


def returned(name: str, value: Any, id: str = "1") -> types.Part:
    return types.Part(function_response=types.FunctionResponse(id=id, name=name, response=value))


def test_a_message_of_the_user_is_sent_unchanged_with_its_files() -> None:
    picture = types.Part(inline_data=types.Blob(data=b"png", mime_type="image/png", display_name="a.png"))
    assert outgoing(event_of("user", "Look: ", "here", picture)) == OutgoingMessage(
        (Part(text="Look: "), Part(text="here"), Part(raw=b"png", media_type="image/png", filename="a.png"))
    )


def test_only_events_since_its_last_answer_are_sent() -> None:
    sent = outgoing(event_of("user", "one"), own("first"), event_of("user", "two"), event_of("near", "hm"))
    assert sent == OutgoingMessage((Part(text="two\n\nFor context: [near] said: hm"),), "c1", None)


def test_tool_calls_of_other_agents_are_sent_and_their_thoughts_and_transfers_are_not() -> None:
    events = (
        event_of("user", "Weather?"),
        event_of("near", types.Part(text="I wonder", thought=True), called("weather", city="Rome")),
        event_of("near", returned("weather", {"degrees": 21})),
        event_of("near", called("transfer_to_agent", agent_name="far")),
        event_of("near", returned("transfer_to_agent", {"result": None})),
    )
    sent = outgoing(*events)
    assert sent is not None
    assert sent.parts == (
        Part(
            text="Weather?\n\n"
            'For context: [near] called tool weather with {"city":"Rome"}\n\n'
            'For context: tool weather returned: {"degrees":21}'
        ),
    )


def test_credentials_for_others_stay_here() -> None:
    events = (
        event_of("user", "Go"),
        event_of("near", called("adk_request_credential", auth_config=CREDENTIAL)),
        event_of("user", returned("adk_request_credential", CREDENTIAL)),
        event_of("other", called("mock_function_call_for_required_user_auth", "2", auth_required="Token?")),
        event_of("user", returned("mock_function_call_for_required_user_auth", {"result": "s3cret"}, "2")),
    )
    assert outgoing(*events) == OutgoingMessage((Part(text="Go"),))


@pytest.mark.parametrize(
    ("state", "task_id"),
    [
        (State.INPUT_REQUIRED, "t1"),
        (State.AUTH_REQUIRED, "t1"),
        (State.COMPLETED, None),
        (State.FAILED, None),
        (State.WORKING, None),
    ],
)
def test_words_go_to_the_task_that_waits_for_them(state: State, task_id: str | None) -> None:
    sent = outgoing(own("so", state=state), event_of("user", "Rome"))
    assert sent == OutgoingMessage((Part(text="Rome"),), "c1", task_id)


@pytest.mark.parametrize(
    ("name", "words", "response"),
    [
        ("approve", "yes", {"result": "yes"}),
        ("adk_request_input", "Rome", {"result": "Rome"}),
        ("adk_request_confirmation", "Yes.", {"confirmed": True}),
        ("adk_request_confirmation", "no", {"confirmed": False}),
    ],
)
def test_words_that_answer_the_one_call_of_an_adk_agent_are_its_response(
    name: str, words: str, response: dict[str, Any]
) -> None:
    asked = own("Well?", called(name, "7"), state=State.INPUT_REQUIRED, long_running_tool_ids={"7"})
    sent = outgoing(asked, event_of("user", words))
    assert sent is not None
    data = {"id": "7", "name": name, "response": response}
    assert (sent.task_id, sent.content) == ("t1", (Part(data=data, metadata={"adk_type": "function_response"}),))
    # To a task of their own, if that one has ended, they are words.
    assert (sent.is_answer, replace(sent, task_id=None).content) == (False, (Part(text=words),))


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ([called("approve", "7"), called("approve", "8")], "yes"),  # to which?
        ([called("adk_request_confirmation", "7")], "perhaps"),
        ([called("adk_request_credential", "7")], "s3cret"),
        ([called("mock_function_call_for_required_user_input", "7")], "Rome"),
        ([called("approve", "6")], "yes"),  # waits for nothing
    ],
)
def test_other_words_stay_words(calls: list[Any], words: str) -> None:
    asked = own(*calls, state=State.INPUT_REQUIRED, long_running_tool_ids={"7", "8"})
    assert outgoing(asked, event_of("user", words)) == OutgoingMessage((Part(text=words),), "c1", "t1")


def test_an_answer_to_its_own_call_goes_to_the_task_of_that_call_and_nothing_else_does() -> None:
    asked = own(called("approve", "7"), state=State.INPUT_REQUIRED, long_running_tool_ids={"7"})
    events = (
        asked,
        event_of("near", "noise"),
        event_of("user", returned("other", {"token": "s3cret"}, "8"), returned("approve", {"ok": True}, "7")),
    )
    data = {"id": "7", "name": "approve", "response": {"ok": True}}
    assert outgoing(*events) == OutgoingMessage(
        (Part(data=data, metadata={"adk_type": "function_response"}),), "c1", "t1", True
    )


@pytest.mark.parametrize(
    ("response", "part"),
    [
        ({"result": "Rome"}, Part(text="Rome")),
        ({"answer": "Rome"}, Part(text="Rome")),
        ({"result": {"city": "Rome"}}, Part(data={"city": "Rome"})),
        ({"result": 3}, Part(data=3)),
        ({"city": "Rome", "days": 3}, Part(data={"city": "Rome", "days": 3})),
    ],
)
def test_the_answer_to_a_call_that_was_made_up_here_is_plain(response: Any, part: Part) -> None:
    name = "mock_function_call_for_required_user_input"
    asked = own("City?", called(name, "7"), state=State.INPUT_REQUIRED, long_running_tool_ids={"7"})
    assert outgoing(asked, event_of("user", returned(name, response, "7"))) == OutgoingMessage(
        (part,), "c1", "t1", True
    )


def test_an_answer_that_was_passed_on_is_not_passed_on_again() -> None:
    asked = own(called("approve", "7"), state=State.INPUT_REQUIRED)
    events = (
        asked,
        event_of("user", returned("approve", {"ok": True}, "7")),
        own("Approved"),
        event_of("user", "Thanks"),
    )
    assert outgoing(*events) == OutgoingMessage((Part(text="Thanks"),), "c1", None)


def test_parallel_agents_do_not_receive_texts_of_each_other() -> None:
    events = (
        event_of("user", "Go"),
        event_of("near", "above", branch="team"),
        event_of("left", "beside", branch="team.left"),
        event_of("lefty", "alike", branch="team.far2"),
    )
    sent = outgoing(*events, branch="team.far")
    assert sent == OutgoingMessage((Part(text="Go\n\nFor context: [near] said: above"),))


# -- what was taken back -----------------------------------------------------------------------------------------------


def rewound(invocation: str) -> Event:
    return event_of("user", actions=EventActions(rewind_before_invocation_id=invocation))


def test_a_rewind_of_what_was_rewound_and_of_what_is_not_there_any_more() -> None:
    one, two = event_of("user", "one", invocation_id="1"), event_of("user", "two", invocation_id="2")
    three = event_of("user", "three", invocation_id="4")
    assert live_events([one, two, rewound("2"), rewound("1"), three]) == [three]
    assert live_events([one, rewound("gone"), two]) == [one, two]
    assert live_events([]) == []


def test_a_conversation_that_was_reset_in_the_state_is_begun_anew() -> None:
    place = {"dragoman:far": {"context_id": "c1"}}
    earlier = own("done", actions=EventActions(state_delta=place))
    assert outgoing(earlier, event_of("user", "hi"), state=place) == OutgoingMessage((Part(text="hi"),), "c1", None)
    assert outgoing(earlier, event_of("user", "hi"), state={"dragoman:far": None}) == OutgoingMessage(
        (Part(text="hi"),)
    )
    elsewhere = {"dragoman:far": {"context_id": "c1", "task_id": "t9"}}
    assert outgoing(earlier, event_of("user", "hi"), state=elsewhere) == OutgoingMessage((Part(text="hi"),), "c1", "t9")


def test_where_the_events_are_not_there_the_state_knows_the_conversation() -> None:
    state = {"dragoman:far": {"context_id": "c2", "task_id": "t2"}}
    assert outgoing(event_of("user", "hi"), state=state) == OutgoingMessage((Part(text="hi"),), "c2", "t2")
    assert outgoing(event_of("user", "hi"), state={"dragoman:far": "broken"}) == OutgoingMessage((Part(text="hi"),))


def test_without_new_events_the_request_is_sent_again_and_without_a_request_nothing() -> None:
    given = types.Content(role="user", parts=[types.Part(text="Go")])
    assert outgoing(event_of("user", "Go"), own("done"), given=given) == OutgoingMessage((Part(text="Go"),), "c1", None)
    assert outgoing(event_of("user", "Go"), own("Who?", state=State.INPUT_REQUIRED), given=given) is None
    assert outgoing() is None
    assert outgoing(event_of("user", "")) is None
    assert outgoing(event_of("user", "half", partial=True)) is None


def test_the_input_of_a_node_is_the_message_and_nothing_else_is() -> None:
    class Trip(BaseModel):
        days: int

    for value, part in (
        ("text", Part(text="text")),
        ({"days": 3}, Part(data={"days": 3})),
        ([1, 2], Part(data=[1, 2])),
        (Trip(days=3), Part(data={"days": 3})),
        (types.Content(role="model", parts=[types.Part(text="words")]), Part(text="words")),
    ):
        content = node_content(value)
        assert isinstance(content, NodeInput) and content.role == "user"
        assert outgoing(event_of("user", "before"), own("done"), given=content) == OutgoingMessage((part,), "c1", None)
