"""`dragoman users`: manages the users of a store, also while the server runs."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from dragoman.cli.options import HELP, with_options
from dragoman.cli.printing import out, print_json, print_table, say, utc
from dragoman.cli.store.on_store import IN_MEMORY, on_store, record_change
from dragoman.model.error import ConfigError
from dragoman.server.config.settings import Settings

if TYPE_CHECKING:
    from dragoman.model.user import Account, UserSummary
    from dragoman.stores.administration import Administration
    from dragoman.stores.users import Users

_TIME = re.compile(r"([1-9][0-9]{0,5})([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_HINT = 4


def _parse_duration(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    match = None if value is None else _TIME.fullmatch(value)
    if value is not None and match is None:
        raise click.BadParameter("must be a time like 30s, 15m, 1h, 30d or 2w", ctx, parameter)
    return None if match is None else int(match[1]) * _SECONDS[match[2]]


def _on_store(function: Callable[..., None]) -> Callable[..., None]:
    """Add `--store` and `--config`, and pass the users of that store."""

    @on_store(IN_MEMORY.format("users"))
    @wraps(function)
    def command(store: Administration, _: Settings, *args: Any, **more: Any) -> None:
        with store.users() as users:
            function(users, *args, **more)

    return command


_for = click.option(
    "--for",
    "seconds",
    metavar="TIME",
    callback=_parse_duration,
    help="How long it is valid, such as 30s, 15m, 1h or 30d.  [default: forever]",
)
_name = click.argument("name")
_with_password = with_options(
    click.option(
        "--password", metavar="TEXT", help="Password. Other users can see it in the process list; the prompt is safer."
    ),
    click.option("--password-stdin", is_flag=True, help="Read the password from standard input."),
)


@click.group("users", short_help="Manage users: passwords, permissions, API keys and cookies.", context_settings=HELP)
def command() -> None:
    """Manage the users who may call. Changes apply to a running server at once."""


@command.command("add")
@_name
@_with_password
@click.option("--no-password", is_flag=True, help="Create a user who can only log in with keys and cookies.")
@click.option("--permission", "permissions", metavar="KEY", multiple=True, help="Permission of the user; repeatable.")
@on_store(IN_MEMORY.format("users"))
def add(
    store: Administration,
    _: Settings,
    name: str,
    password: str | None,
    password_stdin: bool,
    no_password: bool,
    permissions: tuple[str, ...],
) -> None:
    """Add a user. Prompts for the password unless an option sets it."""
    from dragoman.auth.inbound.passwords import new_password

    if no_password and (password is not None or password_stdin):
        raise click.UsageError("--no-password cannot be combined with --password or --password-stdin")
    with store.users() as users:
        if users.account(name) is not None:
            raise ConfigError(
                f"user {name!r} already exists; to change the password, run `dragoman users password {name}`"
            )
        hashed = "" if no_password else new_password(_read_password(password, password_stdin))
        users.add(name, hashed, permissions)
    record_change("user-added", user=name, permission=",".join(permissions))
    say(f"added {name}")


@command.command("password")
@_name
@_with_password
@_on_store
def set_password(users: Users, name: str, password: str | None, password_stdin: bool) -> None:
    """Change the password of a user. The user's cookies become invalid."""
    from dragoman.auth.inbound.passwords import new_password

    _require_user(users, name)
    users.set_password(name, new_password(_read_password(password, password_stdin)))
    record_change("password-set", user=name)
    say(f"changed the password of {name}")


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_on_store
def list_users(users: Users, as_json: bool) -> None:
    """List users, their permissions and the last characters of their keys."""
    listed = users.list_users()
    if as_json:
        print_json([_json(user) for user in listed])
        return
    print_table([_row(user) for user in listed])
    if not listed:
        say("no users")


@command.command("grant")
@_name
@click.argument("permission", metavar="KEY")
@_for
@_on_store
def grant(users: Users, name: str, permission: str, seconds: float | None) -> None:
    """Grant a permission to a user, forever or for a time."""
    users.grant(name, permission, seconds)
    until = "" if seconds is None else utc(int((time.time() + seconds) * 1000))
    record_change("granted", user=name, permission=permission, until=until)
    say(f"granted to {name}{until and f' until {until}'}")


@command.command("revoke")
@_name
@click.argument("what", metavar="[KEY]", required=False)
@_on_store
def revoke(users: Users, name: str, what: str | None) -> None:
    """Revoke a permission, an API key, or all access of a user.

    KEY is a permission, or an API key (dk_…) as `dragoman users list` shows it. Without KEY, the user can no longer
    log in.
    """
    if what is None:
        users.revoke(name)
        record_change("revoked", user=name)
    elif what.startswith("dk_"):
        users.revoke_key(name, what[-_HINT:])
        record_change("key-revoked", user=name, key=what[-_HINT:])
    else:
        users.revoke_permission(name, what)
        record_change("permission-revoked", user=name, permission=what)
    say(f"revoked {name}" if what is None else f"revoked from {name}")


@command.command("key")
@_name
@_for
@_on_store
def key(users: Users, name: str, seconds: float | None) -> None:
    """Create an API key and print it. Copy it now: only its hash is stored."""
    from dragoman.auth.inbound.passwords import key_digest, new_key

    api_key = new_key()
    users.add_key(name, key_digest(api_key), api_key[-_HINT:], seconds)
    until = "" if seconds is None else utc(int((time.time() + seconds) * 1000))
    record_change("key-made", user=name, key=api_key[-_HINT:], until=until)
    out(api_key)


@command.command("cookie")
@_name
@on_store(IN_MEMORY.format("users"))
def cookie(store: Administration, settings: Settings, name: str) -> None:
    """Create a login cookie for a user and print the value of the cookie `user`."""
    from dragoman.auth.inbound.cookie import seal_cookie
    from dragoman.clock import SystemClock
    from dragoman.keys.ring import KeyRing

    with store.users() as users:
        account = _require_user(users, name)
    # Without `secret` in the settings, the key is in the key file.
    if settings.secret:
        ring = KeyRing.from_text(settings.secret)
    elif store.key_file is not None:
        ring = KeyRing.from_file(store.key_file)
    else:
        raise ConfigError("secret is not set: set DRAGOMAN_SECRET to the one that the servers have")
    sealed = seal_cookie(ring, account, SystemClock())
    record_change("cookie-made", user=name)
    out(sealed)


def _require_user(users: Users, name: str) -> Account:
    if (account := users.account(name)) is None:
        raise ConfigError(f"there is no user {name!r}; to create it, run `dragoman users add {name}`")
    return account


def _read_password(password: str | None, from_stdin: bool) -> str:
    if password is not None and from_stdin:
        raise click.UsageError("--password and --password-stdin cannot be combined")
    if password is not None:
        return password
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise click.UsageError("cannot prompt for the password without a terminal: use --password-stdin")
    return str(click.prompt("Password", hide_input=True, confirmation_prompt="Repeat password", err=True))


def _row(user: UserSummary) -> tuple[str, ...]:
    credentials = ["password"] if user.has_password else []
    credentials += [f"dk_…{each.hint}{_until(each.until)}" for each in user.keys]
    permissions = [f"{each.permission}{_until(each.until)}" for each in user.grants]
    return user.name, ", ".join(permissions) or "-", ", ".join(credentials) or "-"


def _until(at: int | None) -> str:
    return "" if at is None else f" until {utc(at)}"


def _json(user: UserSummary) -> dict[str, Any]:
    return {
        "name": user.name,
        "created": utc(user.created),
        "password": user.has_password,
        "permissions": [
            {"key": each.permission, "until": None if each.until is None else utc(each.until)} for each in user.grants
        ],
        "keys": [
            {
                "hint": each.hint,
                "created": utc(each.created),
                "until": None if each.until is None else utc(each.until),
            }
            for each in user.keys
        ],
    }
