"""Which dialect answers: the table of design.md, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman.dialects.dialect import CallingDialect, Dialect, EventWriter
from dragoman.dialects.negotiate import METHODS, Dialects, requested_version
from dragoman.dialects.table import VERSIONS, rest_row
from dragoman.dialects.v01.dialect import V01_RPC
from dragoman.dialects.v1.dialect import V1_0, V1_1
from dragoman.model.error import MethodNotFound, VersionNotSupported
from dragoman.model.operation import Operation, SendMessageRequest

ASKED = (None, *VERSIONS)
DEFAULT = Dialects()
for_method, answering = DEFAULT.for_method, DEFAULT.response_dialect
REST_03 = DEFAULT.match_row(Operation.SEND, rest_row(["v1"]), None).dialect


@pytest.mark.parametrize(
    ("header", "query", "version"),
    [
        (None, None, None),
        ("", "", None),
        (" ", None, None),
        ("1.0", None, "1.0"),
        ("1.0.1", None, "1.0"),
        (" 1.1 ", None, "1.1"),
        ("1", None, "1.0"),
        ("0.3.0", None, "0.3"),
        ("0.2.5", None, "0.2"),
        ("0.1", None, "0.1"),
        (None, "1.1", "1.1"),
        ("", "0.3", "0.3"),
        ("1.0", "1.1", "1.0"),
    ],
)
def test_the_asked_version_is_major_and_minor(header: str | None, query: str | None, version: str | None) -> None:
    assert requested_version(header, query) == version


@pytest.mark.parametrize("asked", ["2.0", "1.2", "0.4", "0", "latest", "1.0, 0.3", "v1.0"])
def test_an_unknown_version_is_refused_and_the_known_ones_are_named(asked: str) -> None:
    for header, query in ((asked, None), (None, asked)):
        with pytest.raises(VersionNotSupported) as caught:
            requested_version(header, query)
        assert caught.value.code == -32009
        assert caught.value.metadata == {"asked": asked, "supported": "0.1, 0.2, 0.3, 1.0, 1.1"}
        assert asked in caught.value.message


@pytest.mark.parametrize("operation", Operation)
@pytest.mark.parametrize("asked", ASKED)
def test_pascal_case_is_1_1_if_asked_else_1_0(operation: Operation, asked: str | None) -> None:
    choice = for_method(operation.value, asked)

    assert choice == (operation, V1_1 if asked == "1.1" else V1_0, False)


@pytest.mark.parametrize(
    ("method", "operation"),
    [
        ("message/send", Operation.SEND),
        ("message/stream", Operation.STREAM),
        ("tasks/pushNotificationConfig/set", Operation.CREATE_PUSH),
        ("tasks/pushNotificationConfig/get", Operation.GET_PUSH),
        ("tasks/pushNotificationConfig/list", Operation.LIST_PUSH),
        ("tasks/pushNotificationConfig/delete", Operation.DELETE_PUSH),
        ("agent/getAuthenticatedExtendedCard", Operation.EXTENDED_CARD),
        ("agent/authenticatedExtendedCard", Operation.EXTENDED_CARD),
    ],
)
@pytest.mark.parametrize("asked", ASKED)
def test_these_methods_are_always_0_3(method: str, operation: Operation, asked: str | None) -> None:
    assert for_method(method, asked) == (operation, DEFAULT.v03, False)


@pytest.mark.parametrize(
    ("method", "operation"),
    [
        ("tasks/send", Operation.SEND),
        ("tasks/sendSubscribe", Operation.STREAM),
        ("tasks/pushNotification/set", Operation.CREATE_PUSH),
        ("tasks/pushNotification/get", Operation.GET_PUSH),
    ],
)
@pytest.mark.parametrize("asked", ASKED)
def test_these_methods_are_always_0_1(method: str, operation: Operation, asked: str | None) -> None:
    assert for_method(method, asked) == (operation, V01_RPC, False)


@pytest.mark.parametrize(
    ("method", "operation"),
    [
        ("tasks/get", Operation.GET),
        ("tasks/cancel", Operation.CANCEL),
        ("tasks/resubscribe", Operation.SUBSCRIBE),
    ],
)
class TestSharedNames:
    def test_without_a_version_the_tasks_origin_decides(self, method: str, operation: Operation) -> None:
        choice = for_method(method, None)

        assert choice == (operation, DEFAULT.v03, True)
        assert answering(choice, "0.1") is V01_RPC
        for origin in ("0.3", "1.0", "1.1", ""):
            assert answering(choice, origin) is DEFAULT.v03

    @pytest.mark.parametrize("asked", ["0.2", "0.3", "1.0", "1.1"])
    def test_with_a_version_it_is_0_3(self, method: str, operation: Operation, asked: str) -> None:
        choice = for_method(method, asked)

        assert choice == (operation, DEFAULT.v03, False)
        assert answering(choice, "0.1") is DEFAULT.v03

    def test_the_version_header_can_ask_for_0_1(self, method: str, operation: Operation) -> None:
        choice = for_method(method, "0.1")

        assert choice == (operation, V01_RPC, False)
        assert answering(choice, "0.3") is V01_RPC


@pytest.mark.parametrize(
    ("method", "meant"),
    [
        ("message/sned", "message/send"),
        ("sendmessage", "SendMessage"),
        ("task/get", "tasks/get"),
        ("tasks/list", "ListTasks"),
        ("tasks/subscribe", "tasks/resubscribe"),
        ("GetTasks", "GetTask"),
    ],
)
def test_the_error_of_an_unknown_method_names_the_nearest_one(method: str, meant: str) -> None:
    with pytest.raises(MethodNotFound) as caught:
        for_method(method, None)

    assert caught.value.code == -32601
    assert caught.value.message == f"Method not found: {method!r}. Did you mean {meant!r}?"


def test_a_method_like_no_other_is_just_unknown() -> None:
    with pytest.raises(MethodNotFound, match=r"^Method not found: 'zzz'$"):
        for_method("zzz", None)


def test_a_very_long_method_is_neither_compared_nor_repeated() -> None:
    with pytest.raises(MethodNotFound) as caught:
        for_method("message/send" * 100_000, None)

    assert len(caught.value.message) < 200


def test_every_method_of_the_table_reads_its_parameters() -> None:
    for method in METHODS:
        choice = for_method(method, None)
        if choice.operation is Operation.EXTENDED_CARD:
            choice.dialect.read_request(choice.operation, b"{}")


@pytest.mark.parametrize(
    ("path_is_v1", "asked", "dialect"),
    [
        (True, None, REST_03),
        (True, "1.0", REST_03),
        (True, "1.1", REST_03),
        (False, None, V1_0),
        (False, "1.0", V1_0),
        (False, "1.1", V1_1),
        (False, "0.3", V1_0),
    ],
)
def test_the_path_decides_for_row(path_is_v1: bool, asked: str | None, dialect: Any) -> None:
    row = rest_row(["v1"] if path_is_v1 else [])
    match = DEFAULT.match_row(Operation.GET, row, asked)
    assert (match.operation, match.dialect) == (Operation.GET, dialect)


def test_a_server_may_flip_what_0_3_does_without_blocking() -> None:
    dialects = Dialects(blocking_by_default=False)
    rpc = dialects.for_method("message/send", None).dialect.read_values(
        Operation.SEND, {"message": {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "a"}]}}
    )
    rest = dialects.match_row(Operation.SEND, rest_row(["v1"]), None).dialect.read_values(
        Operation.SEND, {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "a"}]}}
    )

    for request in (rpc, rest):
        assert isinstance(request, SendMessageRequest)
        assert request.configuration.return_immediately


FACES = pytest.mark.parametrize(
    ("dialect", "version", "asks", "header"),
    [
        (V1_0, "1.0", True, "a2a-extensions"),
        (V1_1, "1.1", True, "a2a-extensions"),
        (DEFAULT.v03, "0.3", True, "x-a2a-extensions"),
        (REST_03, "0.3", True, "x-a2a-extensions"),
        (V01_RPC, "0.1", False, ""),
    ],
)


@FACES
def test_every_dialect_has_all_a_transport_and_a_client_need(
    dialect: Any, version: str, asks: bool, header: str
) -> None:
    promised = {name for face in (EventWriter, Dialect, CallingDialect) for name in vars(face) if name[0] != "_"}

    assert {
        "read_request",
        "write_result",
        "event_writer",
        "write_event",
        "write_params",
        "read_result",
        "read_task",
    } < promised
    assert promised <= set(dir(dialect))
    assert hasattr(dialect.event_writer(), "write_event")


@FACES
def test_every_dialect_says_what_it_is(dialect: Any, version: str, asks: bool, header: str) -> None:
    assert (dialect.version, dialect.asks, dialect.row.extensions_header) == (version, asks, header)
