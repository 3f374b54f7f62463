"""Ada, Bob and nobody, before a server with its door shut.

After every attack the server is healthy, Ada's task waits as it did, and the log has no secret in it.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from argon2 import PasswordHasher

from dragoman import Agent, Context, Server
from dragoman.auth.inbound.cookie import seal_cookie
from dragoman.auth.inbound.passwords import key_digest, new_key, new_password
from dragoman.clock import SystemClock
from dragoman.keys.ring import KeyRing
from dragoman.stores.sqlite.admin.users import SqliteUsers
from dragoman.testing import served

SECRET = "dk1_" + "s" * 43  # as if it were generated: no slow derivation
PASSWORD = "ada's very own password"
AUDIENCE, ISSUER = "the-agent", "https://issuer.example"
# What is stored says how dear a comparison is: most tests are not about that.
QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
# Nobody listens there. It is the one place that webhooks may go to.
HOOK = "http://127.0.0.1:9/hook"
HOOK_TOKEN, HOOK_CREDENTIALS = "the-token-of-ada-s-webhook", "the-credentials-of-ada-s-webhook"

_PUSH_METHODS = {
    "1": ("CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs"),
    "0.3": (
        "tasks/pushNotificationConfig/set",
        "tasks/pushNotificationConfig/get",
        "tasks/pushNotificationConfig/list",
    ),
    "0.1": ("tasks/pushNotification/set", "tasks/pushNotification/get", ""),
}


def vault(agent: Agent) -> Agent:
    """Add two skills that not everybody may use."""

    @agent.skill(permission="vault-key")
    def empty_vault(text: str = "") -> str:
        """Take everything out."""
        return "the vault is empty"

    @agent.skill(permission="vault-key")
    async def ask_vault(ctx: Context) -> str:
        """Ask what to take out."""
        return f"the vault gives {await ctx.ask('What do you want?')}"

    return agent


class Victim:
    """What Ada has, as an attacker would name it; or what nobody has, to compare with."""

    def __init__(self, task: str, context: str, push: str, message: str, token: str) -> None:
        self.task = task
        self.context = context
        self.push = push
        self.message = message
        self.token = token


class House:
    """A server where everybody has to say who they are, with the keys of all who live there."""

    def __init__(self, wire: Any, path: Path, users: SqliteUsers, issuer: KeyRing) -> None:
        self.wire = wire
        self.url: str = wire.url
        self.path = path
        self.users = users
        self.issuer = issuer
        self.ring = KeyRing.from_text(SECRET)
        # What must not be in any log.
        self.secrets = {SECRET, PASSWORD, HOOK_TOKEN, HOOK_CREDENTIALS, "vault-key"}

    def cookie(self, name: str, ring: KeyRing | None = None) -> str:
        """The value of a user's cookie."""
        account = self.users.account(name)
        assert account is not None
        return self.secret(seal_cookie(ring or self.ring, account, SystemClock()))

    def key(self, name: str) -> str:
        """A new key of a user."""
        made = new_key()
        self.users.add_key(name, key_digest(made), made[-4:])
        return self.secret(made)

    def quick_password(self, password: str) -> str:
        """The hash of a password that takes no time to compare."""
        return new_password(self.secret(password), QUICK)

    def token(self, headers: dict[str, Any] | None = None, **changed: Any) -> str:
        """A token of the issuer that is right, but for what is changed."""
        now = SystemClock().now() // 1000
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "carol", "iat": now, "exp": now + 600, **changed}
        kept = {name: value for name, value in claims.items() if value is not None}
        return self.secret(self.issuer.signer().sign_jwt(kept, headers))

    def secret(self, text: str) -> str:
        """Note something that no log may hold."""
        self.secrets.add(text)
        return text

    def as_(self, name: str, **headers: str) -> dict[str, Any]:
        """The headers of a user's request; of nobody's without a name."""
        return {"headers": {**({"Cookie": f"user={self.cookie(name)}"} if name else {}), **headers}}

    def rows(self) -> int:
        """How many tasks there are."""
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as reader:
            return int(reader.execute("SELECT count(*) FROM tasks").fetchone()[0])

    def victim(self, speaker: Any, tool: str = "ask_name") -> Victim:
        """A task of Ada's that waits, with a webhook."""
        message = str(uuid4())
        ids = {"sessionId": str(uuid4())} if speaker.version == "0.1" else {}
        answer = speaker.send(tool=tool, message={"messageId": message}, **ids, **self.as_("ada"))
        task = speaker.task(answer)
        push = str(uuid4())
        made = self.push(speaker, "create", task["id"], push, **self.as_("ada"))
        assert made.status == 200, made.text
        assert "error" not in made.json, made.text
        return Victim(task["id"], task.get("contextId") or task["sessionId"], push, message, HOOK_TOKEN)

    def push(self, speaker: Any, verb: str, task: str, push: str = "", url: str = HOOK, **options: Any) -> Any:
        """Create, get, list or delete a webhook in the words of a speaker; `more` are its other members."""
        auth = {"scheme": "Bearer", "credentials": HOOK_CREDENTIALS}
        old = {"schemes": ["Bearer"], "credentials": HOOK_CREDENTIALS}
        more = options.pop("more", {"token": HOOK_TOKEN, "authentication": auth if speaker.is_modern else old})
        config = {**({"id": push} if push else {}), "url": url, **more}
        if speaker.is_rest:
            return self._push_rest(speaker, verb, task, push, config, **options)
        family = "1" if speaker.is_modern else speaker.version
        create, get, every = _PUSH_METHODS[family]
        name = {"create": create, "get": get, "list": every, "delete": every.replace("list", "delete")}[verb]
        if family == "1":
            name = {"delete": "DeleteTaskPushNotificationConfig"}.get(verb, name)
            params = {"taskId": task, **(config if verb == "create" else {"id": push} if verb != "list" else {})}
        elif verb == "create":
            params = {"taskId" if family == "0.3" else "id": task, "pushNotificationConfig": config}
        else:
            params = {"id": task, **({"pushNotificationConfigId": push} if verb != "list" else {})}
        return speaker.wire.rpc(name, params, path=speaker.path or "/", **options.get("headers", {}))

    def _push_rest(
        self, speaker: Any, verb: str, task: str, push: str, config: dict[str, Any], headers: Any = None
    ) -> Any:
        root = f"{speaker.path}{'' if speaker.is_modern else '/v1'}/tasks/{quote(task, safe='')}"
        one = f"{root}/pushNotificationConfigs/{quote(push, safe='')}"
        version = {"A2A-Version": speaker.version} if speaker.is_modern else {}
        given: dict[str, str] = {**version, **(headers or {})}
        if verb == "create":
            old = {"configId": push, "config": {"pushNotificationConfig": config}}
            body = config if speaker.is_modern else old
            return speaker.wire.rest("POST", f"{root}/pushNotificationConfigs", body, **given)
        method, path = {"get": ("GET", one), "list": ("GET", one.rpartition("/")[0]), "delete": ("DELETE", one)}[verb]
        return speaker.wire.rest(method, path, **given)


@pytest.fixture(scope="module")
def house(wire: Any, new_agent: Callable[..., Agent], tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A server with the users ada (a password), bob (none) and vera (who may open the vault)."""
    folder = tmp_path_factory.mktemp("house")
    users, issuer = SqliteUsers(folder / "t.db"), KeyRing.random()
    users.prepare()
    users.add("ada", new_password(PASSWORD, QUICK))
    users.add("bob")
    users.add("vera", "", ("vault-key",))
    jwks = folder / "jwks.json"
    jwks.write_text(json.dumps(issuer.signer().jwks()))
    bearer = {"issuer": ISSUER, "audience": AUDIENCE, "jwks_file": str(jwks)}
    server = Server(vault(new_agent()), vault(new_agent("other")))
    with served(
        server,
        store=f"sqlite:///{folder / 't.db'}",
        auth={"cookie": {}, "bearer": bearer, "apikey": {}, "basic": {}},
        secret=SECRET,
        push_allow=["127.0.0.1:9"],
        heartbeat=0.05,
        long_poll=0.05,
        limits={"body": 100_000},
        grpc=0,
        drain=0,
    ) as url:
        yield House(wire.at(url), folder / "t.db", users, issuer)


@pytest.fixture(autouse=True)
def _unharmed(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The server is healthy afterwards, and nothing secret was logged."""
    caplog.set_level(logging.DEBUG, "dragoman")
    caplog.set_level(logging.DEBUG, "uvicorn")
    yield
    if "house" not in request.fixturenames:
        return
    house: House = request.getfixturevalue("house")
    ada = house.wire.speaker("1.0-rpc")
    answer = ada.send("still there", **house.as_("ada"))
    assert answer.result["task"]["artifacts"][0]["parts"] == [{"text": "still there"}]
    logged = "\n".join(f"{record.getMessage()} {record.exc_text or ''}" for record in caplog.records)
    assert "Traceback" not in logged
    assert [secret for secret in house.secrets if secret in logged] == []
