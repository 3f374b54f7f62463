"""The commands that try an agent which has just been started; each works as it stands in a shell.

Where callers need a credential, the commands get one: a key or a cookie of a user in the store. Only where others give
it out is there a word to replace: TOKEN, CERTIFICATE.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dragoman.model.error import DragomanError
from dragoman.net.postgres import is_postgres_url, without_password
from dragoman.schema.example import example_text
from dragoman.server.administration import open_administration
from dragoman.server.config.settings import Settings
from dragoman.server.http.authentication import AuthSettings

if TYPE_CHECKING:
    from dragoman.agents.functions.skill import Offer
    from dragoman.model.user import UserSummary
    from dragoman.stores.administration import Administration

# Where commands look for an agent that they are given no address of.
DEFAULT_ADDRESS = "http://127.0.0.1:8080"
# Schemes whose credentials `dragoman users` gives out, the simplest first, and those of an issuer elsewhere.
_BY_USERS = ("bearer", "apikey", "cookie", "basic")
_BY_ISSUERS = ("bearer", "oauth2", "oidc")
_BARE = re.compile(r"http://([\w.-]+:\d+)")
_PLAIN = re.compile(r"[\w ,.?-]+")


class Trial(NamedTuple):
    """A first call of an agent at an address."""

    agent: Any
    settings: Settings
    base: str

    def commands(self) -> list[str]:
        """Return the commands to type, in this order; none when nobody can get in."""
        auth, skill = self.settings.auth, sample_skill(self.agent)
        permission = None if skill is None else skill.permission
        if auth is None:
            return self._as_user("cookie", permission) if permission is not None else [self._call()]
        if not isinstance(auth, AuthSettings):  # a function of the author's own: most read a token
            return [self._with_token("TOKEN")]
        by_users = [name for name in _BY_USERS if name in auth.names and auth.tables.get(name, {}).get("users", True)]
        if by_users:
            return self._as_user(by_users[0], permission)
        if any(name in auth.names for name in _BY_ISSUERS):
            return [self._with_token("TOKEN")]
        return [self._with_certificate()]

    def _as_user(self, scheme: str, permission: str | None) -> list[str]:
        """Return the commands for a scheme whose credentials `dragoman users` gives out, with a new user if needed."""
        store = open_administration(self.settings.store)
        if store is None:
            return []
        users = [user for user in _users(store) if user.has_password or scheme != "basic"]
        # Rather one who may use the skill.
        users.sort(key=lambda user: permission not in {None, *(each.permission for each in user.grants)})
        commands: list[str] = []
        name = users[0].name if users else "ada"
        if not users:
            options = [] if scheme == "basic" else ["--no-password"]
            options += [] if permission is None else ["--permission", shlex.quote(permission)]
            commands.append(self._users("add", name, *options))
        elif permission is not None and permission not in {each.permission for each in users[0].grants}:
            commands.append(self._users("grant", name, shlex.quote(permission)))
        if scheme == "basic":
            # `users add` has asked for the password. `read -p` is another thing in zsh.
            call = self._with_token(f'"{name}:$P"')
            return [*commands, f"echo Password:; read -rs P; {call}"]
        verb = ("cookie", name) if scheme == "cookie" else ("key", name, "--for", "1h")
        return [*commands, self._with_token(f'"$({self._users(*verb)})"')]

    def _users(self, *words: str) -> str:
        store = self.settings.store
        # A command without `--store` finds it in the environment; a password is never printed.
        is_found = store == os.environ.get("DRAGOMAN_STORE", Settings().store)
        printable = without_password(store) if is_postgres_url(store) else store
        place = [] if is_found else ["--store", shlex.quote(printable)]
        return " ".join([program(), "users", *words, *place])

    def _with_token(self, token: str) -> str:
        return f"DRAGOMAN_TOKEN={token} {self._call()}"

    def _with_certificate(self) -> str:
        message = {"messageId": "try-1", "role": "ROLE_USER", "parts": [sample_part(self.agent)]}
        words = ["curl", "--insecure", "--cert", "CERTIFICATE", f"{self.settings.url or self.base}/message:send"]
        body = json.dumps({"message": message}, ensure_ascii=False)
        return shlex.join([*words, "-H", "Content-Type: application/json", "-d", body])

    def _call(self) -> str:
        part = sample_part(self.agent)
        if "text" in part:
            text = part["text"]
            return self._command("send", *(["--"] if text.startswith("-") else []), _quoted(text))
        arguments: dict[str, Any] = part["data"]["arguments"]
        words = [shlex.quote(_argument(name, value)) for name, value in arguments.items()]
        return self._command("call", shlex.quote(part["data"]["tool"]), *words)

    def _command(self, verb: str, *words: str) -> str:
        address = self.settings.url or self.base
        bare = _BARE.fullmatch(address)
        # A text such as https://example.com would pass for the address if there were none.
        is_default = address == DEFAULT_ADDRESS and ":" not in words[0]
        place = [] if is_default else [bare[1] if bare else shlex.quote(address)]
        insecure = ["--insecure"] if address.startswith("https://") and not self.settings.url else []
        return " ".join([program(), verb, *place, *insecure, *words])


def sample_skill(agent: Any) -> Offer | None:
    """Return the skill to try: one that needs no permission if there is one, the default if it can be."""
    skills: Sequence[Offer] = getattr(agent, "skills", ())
    open_skills = [skill for skill in skills if skill.permission is None] or skills
    return next((skill for skill in open_skills if skill.default), next(iter(open_skills), None))


def sample_part(agent: Any) -> dict[str, Any]:
    """Return a message part to try: an example of a skill, else sample arguments for it."""
    skill = sample_skill(agent)
    return {"text": "hello"} if skill is None else skill.sample()


def _users(store: Administration) -> list[UserSummary]:
    try:
        with store.users(create=False) as users:
            return users.list_users()
    except DragomanError:  # the tables are not there yet, or the server itself says what is wrong
        return []


def program() -> str:
    """Return what a shell in this folder has to type for `dragoman`."""
    here = Path(sys.executable).parent / "dragoman"
    on_path = shutil.which("dragoman")
    if on_path is not None and (Path(on_path) == here or not here.exists()):
        return "dragoman"
    place = here if here.exists() else Path(sys.executable)
    name = str(place.relative_to(Path.cwd())) if place.is_relative_to(Path.cwd()) else str(place)
    return shlex.quote(name) if here.exists() else f"{shlex.quote(name)} -m dragoman"


def _quoted(text: str) -> str:
    return f'"{text}"' if _PLAIN.fullmatch(text) else shlex.quote(text)


def _argument(name: str, value: Any) -> str:
    """Write one argument of `dragoman call`: text and numbers as they are, anything else as JSON."""
    if isinstance(value, str) or type(value) in (int, float):
        return f"{name}={example_text(name) if value == '' else value}"
    return f"{name}:={json.dumps(value, ensure_ascii=False)}"
