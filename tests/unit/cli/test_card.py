"""`dragoman card`: a summary for people, the card for programs, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman import Agent
from dragoman.keys.card_signature import sign_card, signatures_for
from dragoman.keys.ring import KeyRing
from dragoman.testing import served

from .conftest import Run


def calculator() -> Agent:
    agent = Agent("calculator", description="Adds numbers", version="2.0")

    @agent.skill(tags=("math",), examples=("3 and 4",))
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return agent


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(calculator()) as url:
        yield url


def site(pages: dict[str, tuple[str, bytes]]) -> Any:
    """An app with these pages: their content type and their body."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            kind, body = pages.get(scope["path"], ("text/plain", b"nothing here"))
            status = 200 if scope["path"] in pages else 404
            await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind.encode())]})
            await send({"type": "http.response.body", "body": body})

    return app


def with_card(card: Any) -> Any:
    return site({"/.well-known/agent-card.json": ("application/json", json.dumps(card).encode())})


def test_the_summary_has_name_interfaces_skills_and_security(url: str, run: Run):
    done = run("card", url)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["calculator 2.0", "Adds numbers"]
    assert f"  * JSONRPC 1.0  {url}/a2a" in lines
    assert f"    HTTP+JSON 1.0  {url}" in lines
    assert "  streaming: yes" in lines
    assert lines[lines.index("security") + 1] == "  none"
    assert "  add: Add two numbers." in lines
    assert "      e.g. 3 and 4" in lines


def test_the_interface_that_would_be_used_is_marked_as_the_options_want_it(url: str, run: Run):
    done = run("card", url, "--protocol", "0.3", "--transport", "rest")
    assert [line for line in done.stdout.splitlines() if line.startswith("  * ") and "http" in line] == [
        f"  * HTTP+JSON 0.3  {url}"
    ]


def test_the_summary_shows_required_credentials_and_the_provider(run: Run):
    card = {
        "name": "old", "description": "x", "version": "1", "url": "http://127.0.0.1:1/", "capabilities": {},
        "protocolVersion": "0.3.0", "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [], "securitySchemes": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
        "security": [{"key": []}], "provider": {"organization": "Example", "url": "https://example.com"},
    }  # fmt: skip
    with served(with_card(card)) as url:
        lines = run("card", url).stdout.splitlines()
    assert "  `key` (apiKey)" in lines
    assert "by Example, https://example.com" in lines
    assert "  streaming: not said" in lines
    assert lines[lines.index("skills") + 1] == "  none"


def test_a_card_of_any_version_is_printed_as_1_0_spells_it(run: Run):
    card = {
        "name": "old", "description": "x", "version": "1", "url": "http://127.0.0.1:1/", "capabilities": {},
        "authentication": {"schemes": ["bearer"]}, "skills": [],
    }  # fmt: skip
    with served(site({"/.well-known/agent.json": ("application/json", json.dumps(card).encode())})) as url:
        done = run("card", url, "--json")
    shown = json.loads(done.stdout)
    assert shown["supportedInterfaces"][0]["protocolBinding"] == "JSONRPC"
    assert "authentication" not in shown


def test_a_card_that_is_right_passes(url: str, run: Run):
    done = run("card", url, "--validate")
    assert done.returncode == 0
    assert "error" not in done.stdout
    assert done.stderr.startswith(f"{url}/.well-known/agent-card.json: no errors, ")


def test_every_problem_is_listed_with_its_field_and_rule(run: Run):
    card = {"name": "", "supportedInterfaces": [{"url": "nowhere", "protocolBinding": "JSONRPC"}], "skills": {}}
    with served(with_card(card)) as url:
        done = run("card", url, "--validate")
        listed = json.loads(run("card", url, "--validate", "--json").stdout)
    assert done.returncode == 1
    for field in ("version", "supportedInterfaces[0].url", "supportedInterfaces[0].protocolVersion", "skills"):
        assert any(line.startswith(f"error    {field}: ") and "A2A 1.0, " in line for line in done.stdout.splitlines())
    assert listed["url"] == f"{url}/.well-known/agent-card.json"
    assert {problem["level"] for problem in listed["problems"]} >= {"error"}
    *lines, last = done.stdout.splitlines()
    assert (len(lines), last) == (len(listed["problems"]), "not signed")
    assert listed["signed"] is None


def test_html_in_the_place_of_a_card_is_an_error(run: Run):
    with served(site({"/.well-known/agent-card.json": ("text/html", b"<html>")})) as url:
        done = run("card", url, "--validate")
    assert done.returncode == 1
    assert done.stdout.startswith("error    (card): HTML or XML. ")
    assert len(done.stdout.splitlines()) == 1


def test_where_there_is_no_card_there_is_nothing_to_check(run: Run):
    with served(site({})) as url:
        done = run("card", url, "--validate")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"dragoman: there is no agent card at {url}: HTTP 404 at ")


# -- signatures ------------------------------------------------------------------------------------------------------


def changed(app: Any, change: Callable[[dict[str, Any]], None], seen: list[str] | None = None) -> Any:
    """The app behind somebody who changes its card on the way."""

    async def between(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and seen is not None:
            seen.append(scope["path"])
        if scope["type"] != "http" or not scope["path"].endswith("/agent-card.json"):
            await app(scope, receive, send)
            return
        parts: list[bytes] = []

        async def keep(message: Any) -> None:
            if message["type"] == "http.response.body":
                parts.append(message.get("body", b""))

        await app(scope, receive, keep)
        card = json.loads(b"".join(parts))
        change(card)
        kind = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        await send({"type": "http.response.body", "body": json.dumps(card).encode()})

    return between


def resigned(ring: KeyRing, **options: Any) -> Callable[[dict[str, Any]], None]:
    def change(card: dict[str, Any]) -> None:
        card["signatures"] = signatures_for(card, ring.signer(), **options)

    return change


def test_a_signed_card_says_by_whom_and_in_which_form(run: Run):
    with served(calculator(), sign=True, secret="a secret of some length") as url:
        done = run("card", url, "--validate")
        listed = json.loads(run("card", url, "--validate", "--json").stdout)
    kid = KeyRing.from_text("a secret of some length").signer().kid
    place = f"{url}/.well-known/jwks.json"
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == f"signed   by key {kid} (ES256), specification form, keys from {place}"
    assert listed["signed"] == {"kid": kid, "alg": "ES256", "form": "specification", "keys": place}


def test_a_signature_in_the_form_of_the_sdks_is_recognized(run: Run, tmp_path: Path):
    ring = KeyRing.random()

    def sign_as_sdks_do(card: dict[str, Any]) -> None:
        card["skills"] = []
        card["signatures"] = [sign_card(card, ring.signer(), form="sdk")]

    (tmp_path / "keys.json").write_text(json.dumps(ring.signer().jwks()))
    with served(changed(calculator().app(store="memory:"), sign_as_sdks_do)) as url:
        done = run("card", url, "--validate", "--jwks", "keys.json")
    assert f"signed   by key {ring.signer().kid} (ES256), SDK form, keys from keys.json" in done.stdout.splitlines()


def test_a_signature_that_does_not_hold_is_an_error(run: Run):
    app = calculator().app(store="memory:", sign=True)
    with served(changed(app, lambda card: card.update(name="somebody else"))) as url:
        done = run("card", url, "--validate")
    assert done.returncode == 1
    assert "error    signatures: the card has no signature that holds: the signature does not fit" in done.stdout
    assert "signed   " not in done.stdout


def test_keys_are_not_asked_for_elsewhere_unless_they_are_named(run: Run):
    seen: list[str] = []
    ring = KeyRing.random()
    keys = site({"/keys": ("application/json", json.dumps(ring.signer().jwks()).encode())})
    with served(changed(keys, lambda _: None, seen)) as elsewhere:
        card = changed(calculator().app(store="memory:"), resigned(ring, jku=f"{elsewhere}/keys"))
        with served(card) as url:
            done = run("card", url, "--validate")
            assert done.returncode == 0
            assert f"not checked: the keys are at {elsewhere}/keys, and nobody asked there" in done.stdout
            assert seen == []
            done = run("card", url, "--validate", "--jwks", f"{elsewhere}/keys")
            assert done.stdout.endswith(f"specification form, keys from {elsewhere}/keys\n")
            assert seen == ["/keys"]


def test_a_signature_whose_key_is_nowhere_is_worth_a_warning(run: Run):
    with served(changed(calculator().app(store="memory:"), resigned(KeyRing.random()))) as url:
        done = run("card", url, "--validate")
    assert done.returncode == 0
    assert "warning  signatures: the card has no signature that holds: no key is named" in done.stdout
    assert "--jwks checks with given keys" in done.stdout


def test_with_keys_of_ones_own_no_other_will_do(run: Run, tmp_path: Path, url: str):
    (tmp_path / "keys.json").write_text(json.dumps(KeyRing.random().signer().jwks()))
    with served(calculator(), sign=True) as signed:
        done = run("card", signed, "--validate", "--jwks", "keys.json")
    assert done.returncode == 1
    assert "error    signatures: the card has no signature that holds: no key is named" in done.stdout
    done = run("card", url, "--validate", "--jwks", "keys.json")
    assert (done.returncode, "error    signatures: the card is not signed." in done.stdout) == (1, True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--jwks", "keys.json"], "--jwks needs --validate"),
        (["--validate", "--jwks", "missing.json"], "the keys in missing.json cannot be read"),
    ],
)
def test_keys_that_cannot_be_used_are_wrong_usage(run: Run, url: str, words: list[str], expected: str):
    done = run("card", url, *words)
    assert done.returncode == 2
    assert expected in done.stderr
