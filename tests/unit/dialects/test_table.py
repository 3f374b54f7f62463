"""The table of versions and bindings."""

from __future__ import annotations

import pytest

from dragoman.dialects import table
from dragoman.dialects.negotiate import dialect_of, webhook_dialect
from dragoman.model.error import MethodNotFound
from dragoman.model.operation import Operation


@pytest.mark.parametrize("key", table.ROWS)
def test_every_row_has_a_dialect_that_says_the_same_of_itself(key: tuple[str, str]) -> None:
    row = table.ROWS[key]
    dialect = dialect_of(*key)
    assert dialect is not None
    assert (row.version, row.binding) == key
    # Callers of 0.2 speak 0.3.
    assert dialect.version == (table.V0_3 if row.version == table.V0_2 else row.version)
    assert dialect.row.webhook == row.webhook
    assert dialect.row.asks == row.asks == dialect.asks


def test_every_version_is_spoken_over_json_rpc_and_all_but_the_oldest_over_rest_and_grpc() -> None:
    spoken = [(version, table.JSONRPC) for version in table.VERSIONS]
    newer = [(version, binding) for binding in (table.REST, table.GRPC) for version in table.VERSIONS[1:]]
    assert list(table.ROWS) == [*spoken, *newer]
    assert dialect_of(table.V0_1, table.REST) is dialect_of(table.V0_1, table.GRPC) is None


def test_the_package_of_a_grpc_service_selects_the_version() -> None:
    services = {version: table.ROWS[version, table.GRPC].service for version in table.VERSIONS[1:]}
    assert services == {
        "0.2": "a2a.v1.A2AService",
        "0.3": "a2a.v1.A2AService",
        "1.0": "lf.a2a.v1.A2AService",
        "1.1": "lf.a2a.v1.A2AService",
    }
    assert table.ROWS["0.3", table.GRPC].methods[Operation.SUBSCRIBE] == "TaskSubscription"
    assert table.ROWS["1.1", table.GRPC].methods[Operation.SUBSCRIBE] == "SubscribeToTask"


def test_an_operation_a_version_lacks_has_no_name_in_it() -> None:
    assert table.method_of(Operation.GET, "0.1") == table.method_of(Operation.GET, "0.3") == "tasks/get"
    with pytest.raises(MethodNotFound, match=r"^A2A 0\.3 has no ListTasks: ask for it in A2A 1\.0$"):
        table.method_of(Operation.LIST, "0.3")


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.0", "1.0"), ("v1.0.3", "1.0"), ("0.2.5", "0.2"), ("0.9", "0.3"), ("1.7", "1.1"), ("2.0", "1.0"), ("", "1.0")],
)
def test_the_nearest_version_is_spoken(text: str, version: str) -> None:
    assert table.nearest_version(text) == version


@pytest.mark.parametrize(("text", "known"), [("0.3.0", True), ("1.9", True), ("2.0", False), ("1", False), ("", False)])
def test_a_known_major_number_stands_before_a_point(text: str, known: bool) -> None:
    assert table.is_supported_major(text) is known


def test_a_path_under_v1_is_0_3_and_every_other_1_0() -> None:
    assert table.rest_row(["v1", "tasks"]).version == "0.3"
    assert table.rest_row([]).version == table.rest_row(["tasks", "v1"]).version == "1.0"


def test_a_webhook_is_written_in_the_version_of_its_registration() -> None:
    assert [webhook_dialect(version).version for version in ("", *table.VERSIONS)] == [
        "1.0", "0.1", "0.3", "0.3", "1.0", "1.1",
    ]  # fmt: skip
    forms = [table.row_of(version).webhook for version in table.VERSIONS]
    assert [form.events for form in forms] == [False, False, False, True, True]
    assert [form.single for form in forms] == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("method", "requested", "version"),
    [
        ("SendMessage", None, "1.0"),
        (None, None, "1.0"),
        ("message/send", None, "0.3"),
        ("tasks/get", None, "0.3"),
        ("tasks/get", "0.1", "0.1"),
        ("tasks/get", "0.1.0", "0.1"),
        ("tasks/get", "0.3", "0.3"),
        ("tasks/send", None, "0.1"),
        ("tasks/sendSubscribe", None, "0.1"),
        ("tasks/pushNotification/set", "1.0", "0.1"),
        ("no/such", None, "0.3"),
    ],
)
def test_errors_are_spelled_as_the_caller_of_a_method_reads_them(
    method: object, requested: str | None, version: str
) -> None:
    assert table.version_of_method(method, requested) == version


def test_only_a_resubscription_of_0_3_over_json_rpc_gets_its_error_as_an_event() -> None:
    rows = [(row.version, row.binding) for row in table.ROWS.values() if row.errors_as_events]

    assert rows == [("0.2", "JSONRPC"), ("0.3", "JSONRPC")]
    assert table.is_error_event("tasks/resubscribe", "0.3")
    assert not table.is_error_event("tasks/resubscribe", "0.1")
    assert not table.is_error_event("message/stream", "0.3")
