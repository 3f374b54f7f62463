"""One call in every version and binding is what our own client really sends, and what our server reads as the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from unit.console.console_client import console_of

from dragoman import Agent, Client, File, Task
from dragoman.console.calls import (
    CALL_ROWS,
    MAX_EVENTS,
    CallAddress,
    WireCall,
    address_of,
    read_call,
    write_call,
)
from dragoman.dialects.negotiate import Dialects, dialect_of
from dragoman.dialects.table import GRPC, JSONRPC, REST, ROWS, VERSION_HEADER
from dragoman.errors import InvalidParams, MethodNotFound, ParseError, TaskNotFound
from dragoman.model.operation import Operation, SendMessageRequest
from dragoman.net.exchange import CallNext, HttpRequest, HttpResponse
from dragoman.net.grpc.frames import read_frames
from dragoman.testing import served
from dragoman.transports.grpc.method import METHODS

few = settings(max_examples=40, deadline=None, database=None)
TRANSPORTS = {JSONRPC: "jsonrpc", REST: "rest", GRPC: "grpc"}
DIALECTS = Dialects()
ROW_NAMES = [f"{row.version} {row.binding}" for row in CALL_ROWS]
AT = CallAddress("http://127.0.0.1:8080/agents/desk", "127.0.0.1:9090")
MESSAGE: dict[str, Any] = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


def written(operation: str, params: Any, address: CallAddress = AT, **more: Any) -> dict[str, WireCall]:
    body = msgspec.json.encode({"agent": "desk", "operation": operation, "params": params, **more})
    call = read_call(body, ["desk"])
    return {f"{row.version} {row.binding}": write_call(call, row, address) for row in CALL_ROWS}


def as_json(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


# -- what the client sends ---------------------------------------------------------------------------------------------


class Recorder:
    """Records what a client sends, but for what it asks of cards."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []

    async def __call__(self, request: HttpRequest, call_next: CallNext) -> HttpResponse:
        if request.operation:
            self.requests.append(request)
        return await call_next(request)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    agent = Agent("desk")

    @agent.skill(default=True)
    def echo(text: str) -> str:
        return text

    with served(agent, store="memory:", grpc=0) as url:
        yield url


async def send(client: Client) -> None:
    await client.send("hello", files=[File(b"\x00\xff", name="blob.bin")], data={"n": [1, None]}, metadata={"k": 1})


async def stream(client: Client) -> None:
    async for _ in client.stream("hello", context="c-1"):
        pass


async def get(client: Client) -> None:
    task = await client.send("hello")
    assert isinstance(task, Task)
    await client.get_task(task.id, history_length=3)


async def cancel(client: Client) -> None:
    await client.cancel_task("no such: task")


async def listing(client: Client) -> None:
    async for _ in client.list_tasks(context="c-1", page_size=5):
        pass


@pytest.mark.parametrize("row", CALL_ROWS, ids=ROW_NAMES)
@pytest.mark.parametrize("act", [send, stream, get, cancel, listing])
async def test_the_written_call_is_the_one_that_our_client_sends(url: str, row: Any, act: Any) -> None:
    recorder = Recorder()
    transport = TRANSPORTS[row.binding]
    async with Client(f"{url}/agents/desk", protocol=row.version, transport=transport, interceptors=[recorder]) as own:
        try:
            await act(own)
        except MethodNotFound:
            assert act is listing
            return
        except TaskNotFound:
            assert act is cancel
    sent = recorder.requests[-1]
    operation = Operation(sent.operation)
    method = METHODS[urlsplit(sent.url).path] if row.binding == GRPC else None
    if method is not None:
        (frame,) = read_frames(sent.body or b"")
        body: Any = method.codec.decode(method.request, frame.data)
    else:
        body = None if sent.body is None else msgspec.json.decode(sent.body)
    # The canonical form of the same call: as the server of that version reads it, in the newest one.
    request: Any = as_read(row, operation, sent, body)
    newest = dialect_of(CALL_ROWS[-1].version, JSONRPC)
    assert newest is not None
    params = msgspec.json.decode(newest.write_params(operation, request))
    grpc = urlsplit(sent.url).netloc if row.binding == GRPC else None
    call = read_call(msgspec.json.encode({"agent": "desk", "operation": operation, "params": params}), ["desk"])
    if isinstance(call.request, SendMessageRequest):
        call = call._replace(request=replace(call.request, new_task_id=request.new_task_id))
    shown = write_call(call, row, address_of(url, "desk", ["desk"], grpc))

    assert shown.missing is None
    assert (shown.method, shown.url) == (sent.method, sent.url)
    assert shown.headers.items() <= sent.headers.items()
    assert without_ids(as_json(shown.body)) == without_ids(body)


def as_read(row: Any, operation: Operation, sent: HttpRequest, body: Any) -> Any:
    if row.binding == JSONRPC:
        match = DIALECTS.match_request(body["method"], sent.headers.get(VERSION_HEADER), None)
        dialect = match.dialect
        if row.version == CALL_ROWS[0].version:  # where it shares the method with a later one
            dialect = DIALECTS.legacy
        return dialect.read_request(operation, msgspec.json.encode(body["params"]))
    served = ROWS["1.0" if row.tenants else "0.3", row.binding]
    dialect = DIALECTS.match_row(operation, served, row.version).dialect
    if row.binding == GRPC or operation in (Operation.SEND, Operation.STREAM):
        return dialect.read_request(operation, msgspec.json.encode(body))
    values = dict(each.split("=", 1) for each in urlsplit(sent.url).query.split("&") if each)
    if operation is not Operation.LIST:
        values["id"] = {Operation.GET: body_id, Operation.CANCEL: body_id}[operation](sent.url)
    return dialect.read_values(operation, values)


def body_id(url: str) -> str:
    from urllib.parse import unquote

    return unquote(urlsplit(url).path.rpartition("/tasks/")[2].removesuffix(":cancel"))


def without_ids(body: Any) -> Any:
    """A client counts its requests."""
    return {name: value for name, value in body.items() if name != "id" or "jsonrpc" not in body} if body else body


# -- properties --------------------------------------------------------------------------------------------------------

ids = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=8)
# Beyond these, a double is not exact, and gRPC has no other numbers.
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)


def json_of(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
        max_leaves=8,
    )


def params_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    metadata = st.dictionaries(st.text("abc", max_size=3), values, min_size=1, max_size=3)
    content = st.one_of(
        st.fixed_dictionaries({"text": st.text(max_size=9)}),
        st.fixed_dictionaries({"raw": st.sampled_from(("", "AP8=", "aGVsbG8="))}),
        st.fixed_dictionaries({"url": ids}),
        st.fixed_dictionaries({"data": values}),
    )
    message = st.fixed_dictionaries(
        {"messageId": ids, "role": st.just("ROLE_USER"), "parts": st.lists(content, min_size=1, max_size=3)},
        optional={"contextId": ids, "taskId": ids, "metadata": metadata, "extensions": st.lists(ids, max_size=2)},
    )
    configuration = st.fixed_dictionaries(
        {},
        optional={
            "acceptedOutputModes": st.lists(ids, max_size=2),
            "historyLength": st.integers(1, 99),
            "returnImmediately": st.booleans(),
        },
    )
    return st.fixed_dictionaries({"message": message}, optional={"configuration": configuration, "metadata": metadata})


@few
@given(params=params_of(json_of(st.none() | st.booleans() | numbers | st.text(max_size=9))))
def test_the_server_reads_in_every_version_what_was_asked_for(params: dict[str, Any]) -> None:
    body = msgspec.json.encode({"agent": "desk", "operation": "SendMessage", "params": params})
    call = read_call(body, ["desk"])
    request = call.request
    assert isinstance(request, SendMessageRequest)
    for row in CALL_ROWS:
        each = write_call(call, row, AT)
        assert each.missing is None
        read = as_read(row, Operation.SEND, HttpRequest(each.method, each.url, each.headers), as_json(each.body))
        if row.chooses_ids:
            assert read.new_task_id == (request.new_task_id or request.message.task_id)
            assert read.message.parts == request.message.parts
            assert read.message.context_id == request.message.context_id
        else:
            assert read == replace(request, new_task_id=None), (row.version, row.binding)


ANYTHING = json_of(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text())


@few
@given(params=params_of(ANYTHING) | ANYTHING, operation=st.sampled_from(Operation))
def test_any_parameters_give_a_call_a_reason_or_an_error_that_names_the_field(
    params: Any, operation: Operation
) -> None:
    try:
        calls = written(operation, params)
    except (InvalidParams, ParseError) as error:
        assert isinstance(error, ParseError) or error.field
        return
    for each in calls.values():
        assert bool(each.missing) != bool(each.url)
        as_json(each)


@few
@given(body=st.binary(max_size=60) | ANYTHING.map(msgspec.json.encode))
def test_a_body_that_is_no_call_is_refused(body: bytes) -> None:
    with pytest.raises((InvalidParams, ParseError)):
        read_call(body, ["desk"])


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_an_operation_is_missing_where_the_version_has_none() -> None:
    calls = written("ListTasks", {"pageSize": 5})
    missing = {name: each.missing for name, each in calls.items() if each.missing}
    assert list(missing) == [name for name in ROW_NAMES if name < "1"]
    assert missing["0.2 JSONRPC"] == "A2A 0.2 has no ListTasks: ask for it in A2A 1.0"
    assert calls["1.0 HTTP+JSON"].url.endswith("/tasks?pageSize=5")
    assert (calls["1.0 HTTP+JSON"].method, calls["1.0 HTTP+JSON"].body) == ("GET", None)


def test_a_tenant_is_missing_where_the_version_has_none() -> None:
    calls = written("GetTask", {"id": "t", "tenant": "acme"})
    assert calls["0.1 JSONRPC"].missing == "A2A 0.1 has no tenants"
    assert calls["0.3 HTTP+JSON"].missing == "A2A 0.3 has no tenants"
    assert calls["1.0 HTTP+JSON"].url == "http://127.0.0.1:8080/agents/desk/acme/tasks/t"
    assert as_json(calls["1.0 GRPC"].body) == {"id": "t", "tenant": "acme"}


def test_over_grpc_a_further_agent_is_a_tenant() -> None:
    address = address_of("http://localhost", "a b", ["desk", "a b"], "localhost:9090")
    assert address.url == "http://localhost/agents/a%20b"
    calls = written("GetTask", {"id": "t"}, address)
    assert as_json(calls["1.0 GRPC"].body) == {"id": "t", "tenant": "a b"}
    assert "only the first agent" in str(calls["0.3 GRPC"].missing)
    assert as_json(written("GetTask", {"id": "t", "tenant": "acme"}, address)["1.1 GRPC"].body)["tenant"] == "a b/acme"


def test_values_that_grpc_cannot_hold_are_missing_only_there() -> None:
    params = {"message": {**MESSAGE, "parts": [{"data": {"n": 10**400}}]}}
    calls = written("SendMessage", params)
    assert {name for name, each in calls.items() if each.missing} == {name for name in ROW_NAMES if "GRPC" in name}
    assert "this cannot be sent over gRPC" in str(calls["1.0 GRPC"].missing)


def test_a_server_without_grpc_says_so() -> None:
    calls = written("GetTask", {"id": "t"}, CallAddress("https://example.org/agents/desk"))
    assert [each.served for each in calls.values()] == ["GRPC" not in name for name in ROW_NAMES]
    assert calls["1.0 GRPC"].url == "grpcs://example.org:443/lf.a2a.v1.A2AService/GetTask"


def test_tasks_are_named_as_grpc_of_each_package_names_them() -> None:
    calls = written("CancelTask", {"id": "t-1"})
    older, newer = calls["0.3 GRPC"], calls["1.0 GRPC"]
    assert (older.service, older.rpc) == ("a2a.v1.A2AService", "CancelTask")
    assert (newer.service, newer.rpc) == ("lf.a2a.v1.A2AService", "CancelTask")
    assert (as_json(older.body), as_json(newer.body)) == ({"name": "tasks/t-1"}, {"id": "t-1"})


def test_the_result_is_in_the_form_of_each_version() -> None:
    status = {"state": "TASK_STATE_CANCELED"}
    result = {"task": {"id": "t", "contextId": "c", "status": status, "generation": "4"}}
    calls = written("SendMessage", {"message": MESSAGE}, result=result)
    responses = {name: as_json(each.response) for name, each in calls.items()}
    assert responses["0.1 JSONRPC"]["result"]["status"] == {"state": "canceled"}
    assert responses["0.3 JSONRPC"]["result"]["kind"] == "task"
    assert responses["0.3 GRPC"]["task"]["status"]["state"] == "TASK_STATE_CANCELLED"
    assert responses["1.0 JSONRPC"] == {"jsonrpc": "2.0", "id": "1", "result": {"task": without(result["task"])}}
    assert responses["1.0 HTTP+JSON"] == {"task": without(result["task"])}
    assert responses["1.1 HTTP+JSON"] == result


def without(task: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in task.items() if name != "generation"}


def test_the_events_are_in_the_form_of_each_version_and_the_last_one_ends_the_stream() -> None:
    def status(state: str) -> Any:
        return {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": state}}}

    events = [status("TASK_STATE_WORKING"), status("TASK_STATE_COMPLETED")]
    calls = written("SubscribeToTask", {"id": "t"}, events=events)
    assert [each["final"] for each in as_json(calls["0.3 GRPC"].events)[-1:][0].values()] == [True]
    older = [each["result"] for each in as_json(calls["0.1 JSONRPC"].events)]
    assert [(each["status"]["state"], each["final"]) for each in older] == [("working", False), ("completed", True)]
    assert as_json(calls["1.0 HTTP+JSON"].events) == events
    assert [each["statusUpdate"]["generation"] for each in as_json(calls["1.1 HTTP+JSON"].events)] == ["1", "2"]
    # A stream that goes on has no last event.
    unfinished = written("SubscribeToTask", {"id": "t"}, events=events[:1])["0.3 JSONRPC"].events
    assert as_json(unfinished)[0]["result"]["final"] is False


def test_a_result_of_nothing_is_what_each_version_says_instead() -> None:
    calls = written("DeleteTaskPushNotificationConfig", {"taskId": "t", "id": "w"}, result={})
    assert as_json(calls["0.3 JSONRPC"].response)["result"] is None
    assert as_json(calls["1.0 JSONRPC"].response)["result"] == as_json(calls["1.0 GRPC"].response) == {}


WRONG: list[tuple[Any, str]] = [
    ({"operation": "GetTask", "params": {"id": "t"}}, "agent"),
    ({"agent": "nobody", "operation": "GetTask", "params": {"id": "t"}}, "agent"),
    ({"agent": "desk", "operation": "tasks/get", "params": {"id": "t"}}, "operation"),
    ({"agent": "desk", "operation": "GetTask", "params": {}}, "params.id"),
    ({"agent": "desk", "operation": "GetTask", "params": [1]}, "params"),
    ({"agent": "desk", "operation": "SendMessage", "params": {"message": {}}}, "params.message.messageId"),
    ({"agent": "desk", "operation": "GetTask", "params": {"id": "t"}, "result": {"id": ""}}, "result"),
    ({"agent": "desk", "operation": "GetTask", "params": {"id": "t"}, "events": [{}]}, "events"),
    ({"agent": "desk", "operation": "SubscribeToTask", "params": {"id": "t"}, "events": [{}]}, "events[0]"),
    ({"agent": "desk", "operation": "SubscribeToTask", "params": {"id": "t"}, "result": {}}, "result"),
    (
        {"agent": "desk", "operation": "SubscribeToTask", "params": {"id": "t"}, "events": [1] * (MAX_EVENTS + 1)},
        "events",
    ),
]


@pytest.mark.parametrize(("given", "field"), WRONG)
def test_an_error_names_the_field(given: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read_call(msgspec.json.encode(given), ["desk"])
    assert caught.value.field == field


def test_too_many_values_are_refused_before_they_are_read() -> None:
    many = msgspec.json.encode({"agent": "desk", "operation": "GetTask", "params": {"id": [1] * 20_001}})
    with pytest.raises(InvalidParams, match="more than 20000 values"):
        read_call(many, ["desk"])


async def test_a_visitor_has_lower_limits_than_a_known_caller() -> None:
    many = {
        "agent": "desk",
        "operation": "SendMessage",
        "params": {"message": {**MESSAGE, "metadata": {"n": [1] * 2000}}},
    }
    large = {"agent": "desk", "operation": "GetTask", "params": {"id": "t", "more": "x" * 70_000}}
    async with console_of([Agent("desk")], opened=False) as browser:
        assert (await browser.post("calls", many))[1]["error"].endswith("more than 2000 values")
        assert (await browser.post("calls", large))[0] == 413
        await browser.open_console()
        assert (await browser.post("calls", many))[0] == 200
        assert (await browser.post("calls", large))[0] == 200


def test_it_needs_no_library_of_grpc() -> None:
    code = (
        "import sys; sys.modules['grpc'] = None\n"
        "from dragoman.console.calls import CALL_ROWS, CallAddress, read_call, write_call\n"
        'call = read_call(b\'{"agent":"a","operation":"GetTask","params":{"id":"t"}}\', ["a"])\n'
        "print(*[write_call(call, row, CallAddress('http://h')).rpc for row in CALL_ROWS if row.service])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=15)
    assert shown.stdout.split() == ["GetTask"] * 4
