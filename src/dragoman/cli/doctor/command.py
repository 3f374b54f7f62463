"""`dragoman doctor`: checks this machine and its store, or an agent elsewhere, and says what to do about problems."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import click

from dragoman import __version__
from dragoman.cli.options import config_option
from dragoman.cli.printing import colored, out, print_json
from dragoman.cli.remote.address import url_argument
from dragoman.cli.remote.session import CommandSession, call_options, parse_options
from dragoman.cli.store.on_store import store_option
from dragoman.installation import install_line, package_line
from dragoman.model.error import ConfigError
from dragoman.net.postgres import is_postgres_url
from dragoman.server.administration import open_administration
from dragoman.server.config.loader import ConfigFile, find_config, load_settings
from dragoman.server.config.settings import SETTINGS, Settings
from dragoman.server.config.store_url import without_password
from dragoman.stores.administration import HealthFinding

FEW_FILES = 1024
_COLORS = {"ok": "green", "warn": "yellow", "FAIL": "red"}


@click.command("doctor", short_help="Check an agent, or the local store and settings.")
@url_argument
@click.option("--send", "text", metavar="TEXT", help="Also send and stream this message; needs an address.")
@store_option
@config_option
@click.option("--full", is_flag=True, help="Check the whole store for damage, which can take long.")
@call_options
@click.pass_context
def command(
    ctx: click.Context,
    url: str | None,
    text: str | None,
    store: str | None,
    config: Path | None,
    full: bool,
    **shared: Any,
) -> None:
    """Check an agent, or the local store, settings and machine.

    With an address, the command fetches the agent's card and tries every interface with requests that start no work.
    It reports each problem with the rule that is broken. Without an address, it checks this machine, changes nothing,
    and is safe to run next to a running server.

    The exit code is 0 if no check fails (warnings do not count), 1 if one fails, and 2 if the settings are invalid.
    """
    if url is not None:
        if store is not None or config is not None or full:
            raise click.UsageError("--store, --config and --full check this machine: omit the address.")
        ctx.exit(_check_agent(url, text, shared))
    for option, value in {"--send": text, **_url_only_options(shared)}.items():
        if value:
            raise click.UsageError(f"{option} checks an agent: add its address.")
    ctx.exit(_check_here(store, config, full=full, as_json=shared["as_json"]))


def _url_only_options(shared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shared options that need a URL, by flag."""
    options = {f"--{name.replace('_', '-')}": value for name, value in shared.items() if name != "as_json"}
    options["-H"] = options.pop("--headers")
    return options


def _check_agent(url: str, text: str | None, shared: dict[str, Any]) -> int:
    from dragoman.cli.doctor.remote import check_agent

    options = parse_options(url, shared)
    with CommandSession(options) as session:
        findings = session.run(check_agent(session, text))
    _print(findings, as_json=options.as_json)
    return 1 if any(finding.level == "FAIL" for finding in findings) else 0


def _check_here(store: str | None, config: Path | None, *, full: bool, as_json: bool) -> int:
    findings = [_check_versions()]
    settings: Settings | None = None
    unknown = list[str]()
    flags = {} if store is None else {"store": store}
    try:
        settings = load_settings(
            {}, environ=os.environ, config=config, cwd=Path.cwd(), flags=flags, warn=unknown.append
        )
        file = find_config(config, environ=os.environ, cwd=Path.cwd())
    except ConfigError as error:
        findings.append(
            HealthFinding("FAIL", "settings", str(error), "correct it: the store is not checked until then")
        )
    else:
        findings += [HealthFinding("warn", "settings", says, "rename or remove it, if it is yours") for says in unknown]
        findings += [
            *_setting_findings(settings, setting_sources(flags, os.environ, file)),
            *_check_store(settings.store, full=full),
        ]
    findings += [_check_driver(settings), *_check_grpc(settings), *_check_machine()]
    _print(findings, as_json=as_json)
    failed = any(finding.level == "FAIL" for finding in findings)
    return 2 if settings is None else 1 if failed else 0


def _print(findings: list[HealthFinding], *, as_json: bool) -> None:
    if as_json:
        levels = {finding.level for finding in findings}
        level = next(level for level in ("FAIL", "warn", "ok") if level in levels)
        answer = {"result": level, "checks": [finding._asdict() for finding in findings]}
        print_json(answer)
        return
    for level, check, says, do in findings:
        text = f"{says}: {do}" if do else says
        out(colored(f"{level:<4}", _COLORS[level]), f"  {check:<11}  {' '.join(text.split())}")


# -- the settings ----------------------------------------------------------------------------------------------------


def setting_sources(flags: Mapping[str, Any], environ: Mapping[str, str], file: ConfigFile | None) -> dict[str, str]:
    """Return where each setting that is not the default was set. The settings must be loadable."""
    sources: dict[str, str] = {}
    for name, info in SETTINGS.items():
        variable = f"DRAGOMAN_{name.upper()}"
        table = "limits" if name.startswith("limits_") else "serve"
        in_file: Mapping[str, Any] = getattr(file, table, {})
        key = name.removeprefix("limits_")
        other = {"port": "PORT", "host": "BIND_HOST"}.get(name, "")
        if name in flags:
            sources[name] = info.flag or name
        # Beside a Kubernetes service called `dragoman`, DRAGOMAN_PORT is tcp://…, which is no setting.
        elif environ.get(variable) and not (name == "port" and "://" in environ[variable]):
            sources[name] = f"environment {variable}"
        elif file is not None and key in in_file:
            sources[name] = f"{file.label} [{table}] {key}"
        elif environ.get(other):
            sources[name] = f"environment {other}"
    return sources


def _setting_findings(settings: Settings, places: Mapping[str, str]) -> Iterator[HealthFinding]:
    for name, place in places.items():
        yield HealthFinding("ok", "settings", f"{name} = {_format_setting(settings, name)}, from {place}")
    rest = [f"{name} = {_format_setting(settings, name)}" for name in SETTINGS if name not in places]
    yield HealthFinding("ok", "settings", f"by default {', '.join(rest)}" if rest else "all are set")


def _format_setting(settings: Settings, name: str) -> str:
    value = SETTINGS[name].of(settings)
    if value is not None and SETTINGS[name].help.secret:
        return "(hidden)"
    if name == "store":
        return without_password(settings.store)
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " ".join(str(one) for one in cast("tuple[object, ...]", value)) or "none"
    return "none" if value is None else str(value)


def _check_store(url: str, *, full: bool) -> Iterator[HealthFinding]:
    store = open_administration(url)
    if store is None:
        yield HealthFinding("ok", "store", "memory: tasks are gone when the server stops")
        return
    yield HealthFinding("ok", "store", f"{without_password(url)} is {store.location}")
    yield from store.examine(full=full)


# -- the machine -----------------------------------------------------------------------------------------------------


def _check_versions() -> HealthFinding:
    return HealthFinding("ok", "versions", f"Dragoman {__version__}, Python {platform.python_version()}")


def _check_driver(settings: Settings | None) -> HealthFinding:
    if settings is not None and is_postgres_url(settings.store):
        # Without it, the settings would not have been accepted.
        return HealthFinding("ok", "asyncpg", version("asyncpg"))
    return check_sqlite_library(sqlite3.sqlite_version_info)


def _check_grpc(settings: Settings | None) -> Iterator[HealthFinding]:
    """Check what gRPC takes, if it is to be served."""
    if settings is None or settings.grpc is None:
        return
    missing = HealthFinding("FAIL", "grpcio", "not installed, so gRPC cannot be served", install_line("grpc"))
    yield _check_package("grpcio", missing)


def check_sqlite_library(version: tuple[int, int, int]) -> HealthFinding:
    """Check a version of SQLite for known bugs."""
    name = f"SQLite {'.'.join(str(number) for number in version)}"
    branch = {(3, 44): (3, 44, 6), (3, 50): (3, 50, 7)}.get(version[:2], (3, 51, 3))  # where the fix was backported
    if version >= branch:
        return HealthFinding("ok", "sqlite", name)
    says = f"{name} has the WAL-reset bug, harmless here because one process writes and checkpoints"
    return HealthFinding("warn", "sqlite", says, "upgrade Python or SQLite when you can")


def _check_machine() -> Iterator[HealthFinding]:
    if sys.platform != "win32":
        import resource

        yield check_open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        yield _check_package(
            "uvloop",
            HealthFinding("warn", "uvloop", "not installed, so serving is slower", package_line("uvloop")),
        )
    yield _check_package(
        "httptools",
        HealthFinding("FAIL", "httptools", "not installed, so nothing can be served", package_line("httptools")),
    )


def check_open_files(limit: int) -> HealthFinding:
    """Check the limit of open files and connections; -1 is no limit."""
    if 0 <= limit < FEW_FILES:
        says = f"only {limit} files and connections may be open at once"
        return HealthFinding("warn", "open files", says, "raise it, as with `ulimit -n 65536`")
    return HealthFinding("ok", "open files", "no limit" if limit < 0 else f"{limit} may be open at once")


def _check_package(name: str, missing: HealthFinding) -> HealthFinding:
    try:
        return HealthFinding("ok", name, version(name))
    except PackageNotFoundError:
        return missing
