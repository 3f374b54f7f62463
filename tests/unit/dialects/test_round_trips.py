"""What a dialect writes it reads back: as far as that version can carry it, nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dragoman.dialects.v01.dialect import V01_RPC
from dragoman.dialects.v03.dialect import V03_RPC
from dragoman.dialects.v03_proto.dialect import V03_PROTO
from dragoman.dialects.v1.dialect import V1_0, V1_1
from dragoman.model.event import ArtifactUpdate, StatusUpdate, response_of
from dragoman.model.json import encode
from dragoman.model.message import Message
from dragoman.model.operation import (
    AuthenticationInfo,
    Operation,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskPushNotificationConfig,
)
from dragoman.model.part import Part
from dragoman.model.record import Record
from dragoman.model.state import Role, State
from dragoman.model.task import Artifact, Task, TaskStatus

# A slow machine is no failure, and nothing is left behind in the tree.
few = settings(max_examples=40, deadline=None, database=None)

DIALECTS = {"1.0": V1_0, "1.1": V1_1, "0.3": V03_RPC, "0.3 REST": V03_PROTO, "0.1": V01_RPC}
MODERN = {"1.0": V1_0, "1.1": V1_1, "0.3": V03_RPC, "0.3 REST": V03_PROTO}
EXACT: dict[str, Any] = {"n": 9007199254740993, "x": 1, "y": 1.0, "k": [None, {"b": 1, "a": 2}]}

# Keys a dialect uses for itself; an author who writes them too is tested on its own.
RESERVED = {"mediaType", "filename", "data_part_compat"}

ids = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=8)
texts = st.text(max_size=12)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
json = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
metadata = st.none() | st.dictionaries(texts.filter(lambda key: key not in RESERVED), json, min_size=1, max_size=3)
optional = st.none() | ids
lists = st.lists(ids, max_size=2).map(tuple)
times = st.none() | st.just("2026-11-15T10:00:00.000Z")

parts = st.one_of(
    st.builds(Part, text=texts, media_type=optional, filename=optional, metadata=metadata),
    st.builds(Part, raw=st.binary(max_size=12), media_type=optional, filename=optional, metadata=metadata),
    st.builds(Part, url=ids, media_type=optional, filename=optional, metadata=metadata),
    st.builds(Part, data=json, media_type=optional, filename=optional, metadata=metadata),
)
messages = st.builds(
    Message,
    message_id=ids,
    role=st.sampled_from((Role.USER, Role.AGENT)),
    parts=st.lists(parts, min_size=1, max_size=3).map(tuple),
    context_id=optional,
    task_id=optional,
    metadata=metadata,
    extensions=lists,
    reference_task_ids=lists,
)
artifacts = st.builds(
    Artifact,
    artifact_id=ids,
    parts=st.lists(parts, max_size=3).map(tuple),
    name=optional,
    description=optional,
    metadata=metadata,
    extensions=lists,
)
statuses = st.builds(TaskStatus, state=st.sampled_from(State), message=st.none() | messages, timestamp=times)
tasks = st.builds(
    Task,
    id=ids,
    context_id=ids,
    status=statuses,
    artifacts=st.lists(artifacts, max_size=2, unique_by=lambda each: each.artifact_id).map(tuple),
    history=st.lists(messages, max_size=2).map(tuple),
    metadata=metadata,
)
status_updates = st.builds(StatusUpdate, task_id=ids, context_id=ids, status=statuses, metadata=metadata)
artifact_updates = st.builds(
    ArtifactUpdate,
    task_id=ids,
    context_id=ids,
    artifact=artifacts,
    append=st.booleans(),
    last_chunk=st.booleans(),
    metadata=metadata,
)
events = st.one_of(tasks, messages, status_updates, artifact_updates)
webhooks = st.builds(
    TaskPushNotificationConfig,
    url=ids,
    id=optional,
    token=optional,
    authentication=st.none() | st.builds(AuthenticationInfo, scheme=ids, credentials=optional),
)
requests = st.builds(
    SendMessageRequest,
    message=messages.map(lambda message: replace(message, role=Role.USER)),
    configuration=st.builds(
        SendMessageConfiguration,
        accepted_output_modes=lists,
        task_push_notification_config=st.none() | webhooks,
        history_length=st.none() | st.integers(1, 99),
        return_immediately=st.booleans(),
    ),
    metadata=metadata,
)


def carried_message(name: str, message: Message, message_id: str = "", context_id: str | None = None) -> Message:
    """The message as far as a version carries it."""
    if name == "0.3 REST":
        return replace(message, reference_task_ids=())
    if name != "0.1":
        return message
    return Message(message_id, message.role, carried_parts(name, message.parts), context_id, None, message.metadata)


def carried_parts(name: str, given: tuple[Part, ...]) -> tuple[Part, ...]:
    """0.1 has no room for what a text or a value is called."""
    if name != "0.1":
        return given
    return tuple(
        replace(part, media_type=None, filename=None) if part.kind in ("text", "data") else part for part in given
    )


def carried_status(name: str, status: TaskStatus, task_id: str) -> TaskStatus:
    named = f"{task_id}-status{status.timestamp or ''}"
    message = None if status.message is None else carried_message(name, status.message, named)
    if name != "0.1":
        return replace(status, message=message)
    state = {State.REJECTED: State.FAILED, State.AUTH_REQUIRED: State.INPUT_REQUIRED}.get(status.state, status.state)
    return replace(status, state=state, message=message)


def carried_artifact(name: str, artifact: Artifact, index: int) -> Artifact:
    if name != "0.1":
        return artifact
    parts = carried_parts(name, artifact.parts)
    return replace(artifact, artifact_id=f"artifact-{index}", parts=parts, extensions=())


def carried_task(name: str, task: Task) -> Task:
    return replace(
        task,
        status=carried_status(name, task.status, task.id),
        artifacts=tuple(carried_artifact(name, each, index) for index, each in enumerate(task.artifacts)),
        history=tuple(carried_message(name, m, f"{task.id}-message-{i}") for i, m in enumerate(task.history)),
    )


def carried_event(name: str, event: Any) -> Any:
    expected = event
    if isinstance(event, StatusUpdate):
        expected = replace(event, status=carried_status(name, event.status, event.task_id))
    elif isinstance(event, Task):
        expected = carried_task(name, event)
    elif isinstance(event, Message):
        expected = carried_message(name, event)
    if name == "1.1" and not isinstance(event, Message):
        expected = replace(expected, generation=7)
    return expected


def same(read: Any, expected: Any) -> bool:
    """Equal also in the types of numbers and in the order of keys, which == does not see."""
    return read == expected and encode(read) == encode(expected)


@few
@given(task=tasks)
def test_a_task_survives_every_dialect_read_or_as_the_answer_to_a_send(task: Task) -> None:
    for name, dialect in DIALECTS.items():
        expected = carried_task(name, task)

        assert same(dialect.read_task(dialect.write_result(Operation.GET, task)), expected), name
        answer = dialect.write_result(Operation.SEND, task)
        assert same(dialect.read_result(Operation.SEND, answer), expected), name


@few
@given(message=messages)
def test_a_bare_message_survives_every_dialect_that_has_one(message: Message) -> None:
    for name, dialect in MODERN.items():
        body = dialect.write_result(Operation.SEND, message)

        assert same(dialect.read_result(Operation.SEND, body), carried_message(name, message)), name


@few
@given(event=events, last=st.booleans())
def test_an_event_survives_every_dialect(event: Any, last: bool) -> None:
    for name, dialect in MODERN.items():
        body = dialect.write_event(Record.of(7, event), last=last)

        assert same(dialect.read_event(body), response_of(carried_event(name, event))), name


@few
@given(event=status_updates, last=st.booleans())
def test_a_status_event_survives_0_1_but_for_its_context(event: StatusUpdate, last: bool) -> None:
    body = V01_RPC.write_event(Record.of(7, event), last=last)

    expected = replace(event, context_id="", status=carried_status("0.1", event.status, event.task_id))
    assert same(V01_RPC.read_event(body), response_of(expected))


@few
@given(event=artifact_updates)
def test_an_artifact_event_survives_0_1_but_for_its_context_and_ids(event: ArtifactUpdate) -> None:
    body = V01_RPC.write_event(Record.of(7, event), last=False)

    expected = replace(event, context_id="", artifact=carried_artifact("0.1", event.artifact, 0))
    assert same(V01_RPC.read_event(body), response_of(expected))


@few
@given(request=requests)
def test_a_send_request_survives_every_dialect(request: SendMessageRequest) -> None:
    for name, dialect in MODERN.items():
        read = dialect.read_request(Operation.SEND, dialect.write_params(Operation.SEND, request))

        assert same(read, replace(request, message=carried_message(name, request.message))), name


@few
@given(request=requests, task_id=ids)
def test_a_send_request_survives_0_1_with_the_id_its_caller_chose(request: SendMessageRequest, task_id: str) -> None:
    chosen = replace(request, new_task_id=task_id)
    read = V01_RPC.read_request(Operation.SEND, V01_RPC.write_params(Operation.SEND, chosen))

    assert isinstance(read, SendMessageRequest)
    message = carried_message("0.1", request.message, read.message.message_id, request.message.context_id)
    expected = replace(chosen, message=message, configuration=replace(request.configuration, return_immediately=False))
    assert same(read, expected)


@pytest.mark.parametrize("name", DIALECTS)
@pytest.mark.parametrize("value", [EXACT, [EXACT], 9007199254740993, 1.0, "text", None, True, [], {}])
def test_numbers_nulls_and_key_order_inside_data_stay_exactly_as_they_are(name: str, value: Any) -> None:
    dialect = DIALECTS[name]
    task = Task(
        "t",
        "c",
        TaskStatus(State.COMPLETED),
        (Artifact("artifact-0", (Part(data=value, metadata={"m": EXACT}),), metadata=EXACT),),
        metadata=EXACT,
    )

    read = dialect.read_task(dialect.write_result(Operation.GET, task))

    assert same(read, task)


@pytest.mark.parametrize("name", DIALECTS)
def test_data_in_a_request_stays_exactly_as_it_is_also_on_the_lenient_way(name: str) -> None:
    dialect = DIALECTS[name]
    message = Message("m", Role.USER, (Part(data=EXACT, metadata=EXACT),), metadata=EXACT)
    body = dialect.write_params(Operation.SEND, SendMessageRequest(message, metadata=EXACT))
    # A null where a list belongs and a key in snake_case send every dialect down the lenient way.
    relaxed = body.replace(b'"metadata":{"n"', b'"extensions":null,"metadata":{"n"').replace(
        b'"messageId"', b'"message_id"'
    )

    for read in (dialect.read_request(Operation.SEND, body), dialect.read_request(Operation.SEND, relaxed)):
        assert isinstance(read, SendMessageRequest)
        found = read.message
        for free in (found.parts[0].data, found.parts[0].metadata, found.metadata, read.metadata):
            assert same(free, EXACT)


@pytest.mark.parametrize("name", ["0.3", "0.3 REST"])
def test_an_authors_own_key_stands_where_a_media_type_would_travel(name: str) -> None:
    dialect = DIALECTS[name]
    part = Part(text="1", media_type="application/json", metadata={"mediaType": 5, "filename": ["x"]})
    task = Task("t", "c", TaskStatus(State.COMPLETED), (Artifact("a", (part,)),))

    read = dialect.read_task(dialect.write_result(Operation.GET, task))

    assert read.artifacts[0].parts[0] == replace(part, media_type=None)
