"""Requests that are wrong: each gets the error of its kind with the field named, and the next request its answer."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from contract.bindings.caller import Caller, Refused, Site
from contract.bindings.spelling import Json

from dragoman import State
from dragoman.model.operation import Operation

NUL, ESCAPE = "a\0b", "a\x1bb"
FORGED = "m1\n2026-01-01 INFO dragoman.audit: event=signed-in user=root"


def field(caller: Caller, name: str) -> str:
    """The name of a field as the version spells it."""
    return name.replace(".parts", ".content") if caller.name in ("0.3-rest", "0.3-grpc") else name


def invalid(call: Callable[[], object]) -> str | None:
    """The field that a call is refused for."""
    with pytest.raises(Refused) as refused:
        call()
    assert refused.value.reason == "INVALID_PARAMS"
    return refused.value.field


# -- the message -------------------------------------------------------------------------------------------------------


def test_a_message_needs_a_part(caller: Caller) -> None:
    assert invalid(lambda: caller.send(parts=[])) == field(caller, "message.parts")


@pytest.mark.needs("message ids")
def test_an_id_that_cannot_be_printed_or_is_too_long_is_refused_by_its_field(caller: Caller) -> None:
    for number in ("", FORGED, NUL, ESCAPE, "m" * 257):
        assert invalid(lambda number=number: caller.send("hi", message_id=number)) == "message.messageId"
    for number in ("c\x1b]52;c;ZXZpbA==\x07", "c\u202ed", NUL, "c" * 257):
        assert invalid(lambda number=number: caller.send("hi", context=number)) == "message.contextId"
    assert caller.send("hi", message_id="é 🐪 / ? #", context="ü&=").context_id == "ü&="


def test_a_task_that_cannot_be_named_is_not_found(caller: Caller) -> None:
    for name in (NUL, ESCAPE, "../tasks", "%", "a b", "ü", "x" * 300, "50%41", "a?b#c&d"):
        for call in (lambda name=name: caller.get(name), lambda name=name: caller.cancel(name)):
            with pytest.raises(Refused) as refused:
                call()
            assert refused.value.reason == "TASK_NOT_FOUND", name
    assert caller.send("still there").text == "still there"


def test_what_is_no_id_may_hold_any_character(caller: Caller) -> None:
    text = "a\0b \u2028 \U0001f600 \x1b"
    task = caller.send(text, message_metadata={NUL: NUL})
    assert task.text == text
    assert task.history[0].metadata == {NUL: NUL}
    assert caller.get(task) == task


@pytest.mark.needs("tenants")
def test_a_tenant_that_cannot_be_printed_is_refused(caller: Caller) -> None:
    for name in (NUL, ESCAPE):
        there = caller.in_tenant(name)
        assert invalid(lambda there=there: there.send("hi")) == "tenant"
        assert invalid(lambda there=there: there.get("t")) == "tenant"
        assert invalid(lambda there=there: there.list()) == "tenant"


def test_a_history_is_not_cut_to_less_than_nothing(caller: Caller) -> None:
    task = caller.send("hi")
    assert invalid(lambda: caller.get(task, historyLength=-1)) == "historyLength"
    named = "historyLength" if caller.version == "0.1" else "configuration.historyLength"
    assert invalid(lambda: caller.send("hi", history_length=-1)) == named


def test_a_message_must_come_from_the_user(caller: Caller) -> None:
    params = caller.message("hi")
    params["message"]["role"] = "ROLE_AGENT"
    assert invalid(lambda: caller.exchange(Operation.SEND, params)) == "message.role"


# -- version, content type, extensions ---------------------------------------------------------------------------------


def test_a_version_that_is_not_spoken_is_refused(caller: Caller) -> None:
    for version in ("9.9", "garbage"):
        with pytest.raises(Refused) as refused:
            caller.send(
                "hi", headers={"A2A-Version": version} if caller.binding != "grpc" else {"a2a-version": version}
            )
        assert refused.value.reason == "VERSION_NOT_SUPPORTED"


@pytest.mark.needs("content types")
def test_a_body_that_is_not_declared_as_json_is_refused(caller: Caller) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "=/=;;", "application/json, application/json"):
        with pytest.raises(Refused) as refused:
            caller.send("hi", headers={"Content-Type": kind})
        assert refused.value.reason == "CONTENT_TYPE_NOT_SUPPORTED"


def test_an_extension_that_is_required_must_be_asked_for(caller: Caller, demanding: Site) -> None:
    there = demanding.caller(caller.name)
    with pytest.raises(Refused) as refused:
        there.send("hi")
    assert refused.value.reason == "EXTENSION_SUPPORT_REQUIRED"
    task = there.with_headers({"A2A-Extensions": "https://example.com/x"}).send(tool="who")
    assert "extensions=https://example.com/x" in task.text


# -- what is only odd --------------------------------------------------------------------------------------------------


@pytest.mark.needs("references")
def test_what_a_message_says_beside_its_parts_is_kept(caller: Caller) -> None:
    metadata: Json = {"z": 1, "a": {"deep": [None, "x"]}}
    task = caller.send("hi", message_metadata=metadata, extensions=["https://example.com/x"], references=["t1", "t2"])
    message = task.history[0]
    assert (message.metadata, message.extensions, message.reference_task_ids) == (
        metadata,
        ("https://example.com/x",),
        ("t1", "t2"),
    )


@pytest.mark.needs("ids with a slash")
def test_an_id_that_a_caller_chooses_may_hold_anything_that_is_printed(caller: Caller, house: Site) -> None:
    chooser, reader = house.caller("0.1-rpc"), caller.in_its_own_version()
    for name in ("50%41", "a/b", "ü and ö", "a?b#c&d", "..", "%2F", "a+b", "x:y"):
        number = f"{uuid4()}{name}"
        chooser.send(tool="ask_name", new_id=number)
        assert reader.get(number).id == number
        assert reader.cancel(number).state is State.CANCELED
