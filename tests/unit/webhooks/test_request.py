"""What a webhook carries, and what its receiver makes of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.http_server import Answer, HttpServer, Request

from dragoman.client import webhook
from dragoman.engine.ports.store import Push
from dragoman.errors import BadResponse, CannotConnect, ConfigError, InvalidParams
from dragoman.keys.ring import KeyRing
from dragoman.keys.signer import Signer
from dragoman.model.operation import AuthenticationInfo, TaskPushNotificationConfig
from dragoman.model.state import State
from dragoman.push import BadSignature, verify
from dragoman.webhooks.request import Secrets, delivery_request, secrets_of

NOW = 1_800_000_000
KEYS = KeyRing.random()
SIGNER = KEYS.signer()
BODY = json.dumps(
    {"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}}
).encode()


def sent(
    secrets: Secrets | None = None,
    *,
    signer: Signer | None = SIGNER,
    body: bytes = BODY,
    task: str = "t",
    id: str = "p",
    dialect: str = "1.0",
) -> Any:
    push = Push(1, id, dialect, "https://hooks.example.com/in?x=1", b"", 1, 0)
    return delivery_request(
        push,
        secrets or Secrets(),
        task,
        7,
        body,
        "application/json",
        signer=signer,
        issuer="https://a.example",
        now=NOW,
    )


def checked(request: Any, **options: Any) -> Any:
    given = {"jwks": KEYS.signer().jwks(), "now": NOW, **options}
    return verify(request.headers, request.body, **given)


# -- headers ---------------------------------------------------------------------------------------------------------


def test_without_credentials_the_signature_is_the_bearer_token() -> None:
    request = sent()
    assert (request.method, request.url) == ("POST", "https://hooks.example.com/in?x=1")
    assert request.headers["Authorization"].startswith("Bearer ey")
    assert "X-Dragoman-Signature" not in request.headers
    assert "X-A2A-Notification-Token" not in request.headers
    assert request.headers["Idempotency-Key"] == "t/p/7"
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["A2A-Version"] == "1.0"


def test_credentials_leave_the_signature_a_header_of_its_own() -> None:
    request = sent(Secrets("tok", "Basic", "dXNlcjpwdw=="), dialect="0.3")
    assert request.headers["Authorization"] == "Basic dXNlcjpwdw=="
    assert request.headers["X-Dragoman-Signature"].startswith("ey")
    assert request.headers["X-A2A-Notification-Token"] == "tok"
    assert "A2A-Version" not in request.headers


def test_a_scheme_without_credentials_is_nothing_to_send() -> None:
    assert sent(Secrets(None, "Bearer", None)).headers["Authorization"].startswith("Bearer ey")


def test_without_a_signer_nothing_is_signed() -> None:
    assert "Authorization" not in sent(signer=None).headers


def test_ids_that_callers_chose_cannot_leave_their_header() -> None:
    request = sent(task="a/b\r\nX-Evil: 1", id="ü p")
    assert request.headers["Idempotency-Key"] == "a%2Fb%0D%0AX-Evil%3A%201/%C3%BC%20p/7"


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (TaskPushNotificationConfig("https://h.example", token="a\r\nX-Evil: 1"), "token"),
        (TaskPushNotificationConfig("https://h.example", token="töken"), "token"),
        (TaskPushNotificationConfig("https://h.example", token=" a "), "token"),
        (TaskPushNotificationConfig("https://h.example", token="a" * 5000), "token"),
        (TaskPushNotificationConfig("https://h.example", id="a\nb"), "id"),
        (TaskPushNotificationConfig("https://h.example", id="a" * 300), "id"),
        (TaskPushNotificationConfig("https://h.example/" + "a" * 5000), "url"),
        (
            TaskPushNotificationConfig("https://h.example", authentication=AuthenticationInfo("Bearer\r\nX: y", "c")),
            "authentication.scheme",
        ),
        (
            TaskPushNotificationConfig("https://h.example", authentication=AuthenticationInfo("Bearer x", "c")),
            "authentication.scheme",
        ),
        (
            TaskPushNotificationConfig("https://h.example", authentication=AuthenticationInfo("Bearer", "a\r\nb")),
            "authentication.credentials",
        ),
    ],
)
def test_what_cannot_stand_in_a_header_is_refused_by_name(config: TaskPushNotificationConfig, field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        secrets_of(config)
    assert caught.value.field == field
    assert "Evil" not in str(caught.value)


# -- verifying -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secrets", [Secrets(), Secrets("tok", "Bearer", "theirs")])
def test_a_signed_request_is_verified(secrets: Secrets) -> None:
    event = checked(sent(secrets), audience="https://hooks.example.com:443")
    assert (event.kind, event.state, event.id, event.text) == ("status", State.COMPLETED, 7, "")
    assert event.raw.task_id == event.task.id == "t"


def test_headers_may_be_a_mapping_of_any_case_or_pairs_of_bytes() -> None:
    request = sent()
    lower = {name.lower(): value for name, value in request.headers.items()}
    pairs = [(name.lower().encode(), value.encode()) for name, value in request.headers.items()]
    for headers in (lower, pairs):
        assert verify(headers, request.body, jwks=KEYS.signer().jwks(), now=NOW).state is State.COMPLETED


def test_a_token_alone_can_be_what_is_checked() -> None:
    request = sent(Secrets("tok"))
    assert verify(request.headers, request.body, token="tok").kind == "status"
    for wrong in ("tok ", "", "other"):
        with pytest.raises(BadSignature, match="token"):
            verify(request.headers, request.body, token=wrong)


def forged(request: Any, **claims: Any) -> dict[str, str]:
    """The same letter with other claims, signed with the right key."""
    payload = {
        "iss": "https://a.example",
        "aud": "https://hooks.example.com:443",
        "iat": NOW,
        "exp": NOW + 300,
        "request_body_sha256": hashlib.sha256(request.body).hexdigest(),
        **claims,
    }
    signed = KEYS.signer().sign_jwt({name: value for name, value in payload.items() if value is not None})
    return {"Authorization": f"Bearer {signed}"}


@pytest.mark.parametrize(
    ("claims", "options"),
    [
        ({"exp": NOW - 120}, {}),
        ({"exp": None}, {}),
        ({"iat": NOW + 3600}, {}),
        ({"request_body_sha256": "0" * 64}, {}),
        ({"request_body_sha256": None}, {}),
        ({}, {"audience": "https://elsewhere.example:443"}),
        ({"aud": None}, {"audience": "https://hooks.example.com:443"}),
        ({}, {"token": "tok"}),
        ({}, {"jwks": KeyRing.random().signer().jwks()}),
        ({}, {"jwks": {"keys": []}}),
        ({}, {"now": NOW + 86_400}),
    ],
)
def test_an_old_foreign_or_changed_request_is_not_verified(claims: Any, options: Any) -> None:
    request = sent()
    request.headers = forged(request, **claims)
    with pytest.raises(BadSignature):
        checked(request, **options)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer opaque"},
        {"Authorization": "Basic a.b.c"},
        {"Authorization": "Bearer a.b.c"},
        {"X-Dragoman-Signature": ""},
        {"X-Dragoman-Signature": "eyJhbGciOiJub25lIiwia2lkIjoiYSJ9.e30."},
        {"X-Dragoman-Signature": "\u00fc.\u00fc.\u00fc"},
    ],
)
def test_a_request_without_a_signature_is_not_verified(headers: dict[str, str]) -> None:
    with pytest.raises(BadSignature):
        verify(headers, BODY, jwks=KEYS.signer().jwks())


def test_a_changed_body_is_not_verified() -> None:
    request = sent()
    with pytest.raises(BadSignature, match="body"):
        verify(request.headers, request.body + b" ", jwks=KEYS.signer().jwks(), now=NOW)


def test_there_must_be_something_to_check_with() -> None:
    with pytest.raises(ConfigError, match="jwks_url"):
        verify({}, BODY)


@pytest.mark.parametrize(
    "body", [b"", b"no", b"[]", b"{}", b'{"status":3}', b'{"statusUpdate":{}}', b'{"kind":"task"}']
)
def test_a_body_without_an_event_is_a_bad_response(body: bytes) -> None:
    request = sent(Secrets("tok"), body=body)
    with pytest.raises(BadResponse):
        verify(request.headers, request.body, token="tok")


STATUS = {"state": "completed", "timestamp": "2026-11-15T10:00:00.000Z"}
ARTIFACTS = [{"artifactId": "a", "parts": [{"kind": "text", "text": "42"}]}]
BODIES: list[tuple[dict[str, Any], str, State, str]] = [
    (
        {
            "artifactUpdate": {
                "taskId": "t",
                "contextId": "c",
                "artifact": {"artifactId": "a", "parts": [{"text": "42"}]},
            }
        },
        "artifact",
        State.WORKING,
        "42",
    ),
    (
        {"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}},
        "task",
        State.COMPLETED,
        "",
    ),
    (
        {"kind": "task", "id": "t", "contextId": "c", "status": STATUS, "artifacts": ARTIFACTS},
        "task",
        State.COMPLETED,
        "42",
    ),
    (
        {"id": "t", "sessionId": "c", "status": STATUS, "artifacts": [{"parts": [{"type": "text", "text": "42"}]}]},
        "task",
        State.COMPLETED,
        "42",
    ),
    (
        {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}},
        "task",
        State.WORKING,
        "",
    ),
]


@pytest.mark.parametrize(("body", "kind", "state", "text"), BODIES)
def test_every_form_of_payload_is_read(body: dict[str, Any], kind: str, state: State, text: str) -> None:
    event = verify({"X-A2A-Notification-Token": "tok"}, json.dumps(body).encode(), token="tok")
    assert (event.kind, event.state, event.text) == (kind, state, text)
    assert event.task is not None
    assert event.task.id == "t"


# -- keys from their address -----------------------------------------------------------------------------------------


class KeyPlace(HttpServer):
    """Somewhere to get keys from."""

    def __init__(self) -> None:
        self.keys: Any = KEYS.signer().jwks()
        self.status = 200
        super().__init__(self._answer, path="/.well-known/jwks.json")

    def _answer(self, _: Request) -> Answer:
        body = self.keys if isinstance(self.keys, bytes) else json.dumps(self.keys).encode()
        return Answer(self.status, body, {"Location": self.url})


@contextmanager
def key_place() -> Iterator[KeyPlace]:
    with KeyPlace() as place:
        try:
            yield place
        finally:
            webhook._key_cache.pop(place.url, None)


def test_keys_are_fetched_once_and_again_when_they_were_rotated(monkeypatch: Any) -> None:
    request = sent()
    with key_place() as place:
        for _ in range(3):
            assert verify(request.headers, request.body, jwks_url=place.url, now=NOW).state is State.COMPLETED
        assert len(place.requests) == 1
        newer = KeyRing.random()
        signed = sent(signer=newer.signer())
        # Within the pause nobody is asked again, however many forged tokens come.
        for _ in range(3):
            with pytest.raises(BadSignature):
                verify(signed.headers, signed.body, jwks_url=place.url, now=NOW)
        assert len(place.requests) == 1
        monkeypatch.setattr(webhook, "_REFETCH_PAUSE", -1.0)
        place.keys = newer.signer().jwks()
        assert verify(signed.headers, signed.body, jwks_url=place.url, now=NOW).state is State.COMPLETED
        assert len(place.requests) == 2


@pytest.mark.parametrize("trouble", ["status", "redirect", "garbage", "array", "endless"])
def test_keys_that_cannot_be_had_are_not_a_bad_signature(trouble: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(webhook, "_MAX_BYTES", 1000)
    request = sent()
    with key_place() as place:
        if trouble in ("status", "redirect"):
            place.status = 500 if trouble == "status" else 302
        else:
            place.keys = {"garbage": b"<html>", "array": b"[]", "endless": b" " * 5000 + b"{}"}[trouble]
        with pytest.raises(CannotConnect):
            verify(request.headers, request.body, jwks_url=place.url, now=NOW)
    with pytest.raises(CannotConnect):
        verify(request.headers, request.body, jwks_url="http://127.0.0.1:9/", now=NOW)
    with pytest.raises(ConfigError):
        verify(request.headers, request.body, jwks_url="file:///etc/passwd", now=NOW)
