"""Loads the settings from keywords, flags, the environment and the settings file, and checks them.

A flag or keyword takes precedence over `DRAGOMAN_<NAME>`, that over `[serve]` in the file, that over `PORT` and
`BIND_HOST`, and those over the default.
"""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, cast

from msgspec import Struct

from dragoman.model.error import ConfigError
from dragoman.net.postgres import is_postgres_url
from dragoman.server.config import values
from dragoman.server.config.settings import SETTINGS, Limits, Settings
from dragoman.server.config.store_file import default_store
from dragoman.server.config.store_url import check_postgres, parse_store
from dragoman.server.config.values import ListenAddress
from dragoman.server.http.authentication import AuthSettings
from dragoman.telemetry.printable import one_line

logger = logging.getLogger("dragoman.settings")

# Settings that mean something only where several servers have one store.
_SHARED = {"node": "a name of their own", "lease": "a lease", "limits_runs": "a limit of runs"}
_EVERYWHERE = {"0.0.0.0", "::"}  # noqa: S104 - compared, not used
# How long running tasks may take, in seconds, when a changed file restarts the server.
RELOAD_DRAIN = 3
# The default rate limit of a caller when authentication is on.
AUTH_RATE, AUTH_BURST = 100, 1000


class ConfigFile(Struct, frozen=True, kw_only=True):
    """A parsed settings file. Only the names of its tables have been checked."""

    path: Path
    label: str
    serve: dict[str, Any]
    limits: dict[str, Any]
    agents: dict[str, dict[str, Any]]
    remotes: dict[str, dict[str, Any]]
    auth: dict[str, dict[str, Any]] = {}


def load_settings(
    keywords: Mapping[str, Any],
    *,
    environ: Mapping[str, str],
    config: Path | None,
    cwd: Path,
    flags: Mapping[str, Any] | None = None,
    warn: Callable[[str], None] = logger.warning,
    partial: bool = False,
    agents: Sequence[str] = (),
) -> Settings:
    """Load the settings. A keyword that is None counts as not set; so does an empty environment variable.

    `flags` come from a command line, named as in SETTINGS, and override keywords; values that are strings are parsed.
    `warn` is called for each variable that looks like a setting and is none: it may belong to another program, so it is
    no error. With `partial`, settings of the program may follow: whether those at hand fit together is not checked.
    `agents` are the names of those that are served: they choose the file of the tasks where no store is set.

    Raises:
        ConfigError: a name is unknown, a value wrong or the file unreadable; says where, and what to type instead.
    """
    file = find_config(config, environ=environ, cwd=cwd)
    raw = _from_platform(environ)
    if file is not None:
        raw |= _from_file(file)
    raw |= _from_environment(environ, warn)
    raw |= _from_keywords(keywords)
    raw |= _from_flags(flags or {})
    checked = {name: _read(name, value) for name, value in raw.items()}
    if checked.get("dev"):
        checked.setdefault("dedupe", 0)
        # A Python program that calls `serve` cannot be started again from within.
        checked.setdefault("reload", flags is not None)
    if checked.get("reload"):
        checked.setdefault("drain", RELOAD_DRAIN)
        if checked.pop("workers", 1) > 1:
            warn(f"{raw['workers'].source}: with --reload there is one worker")
    if not partial:
        _check_shared(checked, raw)
        _check_grpc(checked, raw)
        _check_metrics(checked, raw)
    if file is not None and file.auth:
        checked["auth"] = _with_tables(checked.get("auth"), file)
    if checked.get("auth") is not None and "limits_rate" not in checked:
        checked["limits_rate"] = AUTH_RATE
        checked.setdefault("limits_burst", AUTH_BURST)
    if agents and "store" not in checked:
        checked["store"] = default_store(agents, cwd)
    limits = {name: checked.pop(f"limits_{name}") for name in Limits.__struct_fields__ if f"limits_{name}" in checked}
    return Settings(**checked, limits=Limits(**limits))


def _check_grpc(checked: Mapping[str, Any], raw: Mapping[str, _SettingValue]) -> None:
    """Raise ConfigError for an address of gRPC that is not served, or is that of HTTP."""
    address: ListenAddress | None = checked.get("grpc")
    if address is None:
        if "grpc_url" in checked:
            raise ConfigError(f"{raw['grpc_url'].source}: gRPC is not served: add --grpc 50051, or leave this out")
        return
    settings = Settings()
    port, host = checked.get("port", settings.port), checked.get("host", settings.host)
    if address.port and address.port == port and address.host in ("", host):
        raise ConfigError(f"{raw['grpc'].source}: port {port} is that of HTTP: use another one, as --grpc 50051")


def _check_metrics(checked: Mapping[str, Any], raw: Mapping[str, _SettingValue]) -> None:
    """Raise ConfigError for an address of metrics that is that of HTTP or gRPC."""
    address: ListenAddress | None = checked.get("metrics")
    if address is None or not address.port:
        return
    settings = Settings()
    host: str = checked.get("host", settings.host)
    grpc: ListenAddress | None = checked.get("grpc")
    others = {"HTTP": (host, checked.get("port", settings.port))}
    if grpc is not None:
        others["gRPC"] = (grpc.host or host, grpc.port)
    for name, (other, port) in others.items():
        if address.port == port and (address.host == other or {address.host, other} & _EVERYWHERE):
            source = raw["metrics"].source
            raise ConfigError(f"{source}: port {port} is that of {name}: use another one, as --metrics 9464")


def _check_shared(checked: Mapping[str, Any], raw: Mapping[str, _SettingValue]) -> None:
    """Raise ConfigError for settings that need a store for several servers, if the store is not one."""
    store: str = checked.get("store", Settings().store)
    if is_postgres_url(store):
        return
    for name, thing in _SHARED.items():
        if name in checked:
            raise ConfigError(
                f"{raw[name].source}: only servers that share a store have {thing}: "
                "use --store postgresql://user@host/database, or leave it out"
            )
    if checked.get("workers", 1) > 1:
        path = parse_store(store)
        reason = "tasks in memory belong to one process" if path is None else f"one process owns the file {path}"
        move = "" if path is None else f"; `dragoman migrate {path} URL` moves the tasks there"
        raise ConfigError(
            f"{raw['workers'].source}: several workers need a store that they can share, and {reason}: use --store "
            f"postgresql://user@host/database, or leave it out{move}"
        )


def _with_tables(auth: Any, file: ConfigFile) -> Any:
    """Add the file's `[auth.NAME]` tables to the schemes; without a setting `auth`, the tables enable them."""
    if auth is None:
        return AuthSettings(tuple(file.auth), file.auth, file.path.parent.absolute())
    if not isinstance(auth, AuthSettings):
        return auth
    tables = {name: file.auth[name] for name in auth.names if name in file.auth}
    return AuthSettings(auth.names, {**tables, **auth.tables}, file.path.parent.absolute())


def find_config(config: Path | None, *, environ: Mapping[str, str], cwd: Path) -> ConfigFile | None:
    """Read the file `config`, else `$DRAGOMAN_CONFIG`, else `dragoman.toml` in `cwd` if there is one.

    Raises:
        ConfigError: the named file is missing, the file cannot be read or is not TOML, or a table in it is unknown.
    """
    named = config or (Path(environ["DRAGOMAN_CONFIG"]) if environ.get("DRAGOMAN_CONFIG") else None)
    path = cwd / (named or "dragoman.toml")
    if named is None and not path.exists():
        return None
    label = str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{label}: there is no such settings file") from None
    except OSError as error:
        raise ConfigError(f"{label}: cannot be read: {error.strerror}") from error
    except ValueError as error:  # tomllib.TOMLDecodeError and UnicodeDecodeError are both ValueErrors
        raise ConfigError(f"{label}: is not TOML: {error}") from error
    return _config_file(path, label, content)


def _config_file(path: Path, label: str, content: dict[str, Any]) -> ConfigFile:
    tables: dict[str, dict[str, Any]] = {"serve": {}, "limits": {}, "agents": {}, "remotes": {}, "auth": {}}
    for name, table in content.items():
        if name in SETTINGS and name not in tables:
            raise ConfigError(f"{label}: `{name}` belongs under [serve]")
        if name not in tables:
            raise ConfigError(f"{label}: there is no table [{name}]{suggest_name(name, tables, '[{}]')}")
        tables[name] = _table(table, f"{label} [{name}]")
    for name in ("agents", "remotes", "auth"):
        for key, table in tables[name].items():
            tables[name][key] = _table(table, f"{label} [{name}.{key}]")
    return ConfigFile(path=path, label=label, **tables)


def _table(value: Any, source: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{source}: must be a table, not {values.as_json(value)}")
    return cast("dict[str, Any]", value)


# Paths in a file are relative to it.
_FILES = ("tls_cert", "tls_key", "tls_ca")


class _SettingValue(NamedTuple):
    value: Any
    source: str
    is_text: bool = False
    base: Path | None = None  # what a relative path in the value is relative to, if not the current folder


# The last seven are set for programs that run as agents; see `docs/guides/programs.md`.
_RESERVED = frozenset(
    f"DRAGOMAN_{name}"
    for name in ("CONFIG", "AGENT", "TOKEN", "TASK", "CONTEXT", "DEPTH", "FILES", "FOLDER", "PROCESS", "USER")
)

# Kubernetes sets these in every pod of a namespace with a Service named `dragoman` or `dragoman-x`.
_KUBERNETES = re.compile(r"DRAGOMAN_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)")
_KUBERNETES_PORT = re.compile(r"(tcp|udp|sctp)://.*")


def _from_platform(environ: Mapping[str, str]) -> dict[str, _SettingValue]:
    names = {"port": "PORT", "host": "BIND_HOST"}
    return {
        name: _SettingValue(environ[variable], f"environment {variable}", is_text=True)
        for name, variable in names.items()
        if environ.get(variable)
    }


def _from_file(file: ConfigFile) -> dict[str, _SettingValue]:
    in_serve = [name for name in SETTINGS if not name.startswith("limits_")]
    result: dict[str, _SettingValue] = {}
    for table, prefix, names in (("serve", "", in_serve), ("limits", "limits_", Limits.__struct_fields__)):
        for name, value in cast("dict[str, Any]", getattr(file, table)).items():
            if name not in names:
                raise ConfigError(f"{file.label} [{table}]: there is no setting `{name}`{suggest_name(name, names)}")
            source = f"{file.label} [{table}] {name}"
            result[prefix + name] = _SettingValue(value, source, base=file.path.parent.absolute())
    return result


def _from_environment(environ: Mapping[str, str], warn: Callable[[str], None]) -> dict[str, _SettingValue]:
    names = {f"DRAGOMAN_{name.upper()}": name for name in SETTINGS}
    result: dict[str, _SettingValue] = {}
    for variable, value in environ.items():
        if not variable.startswith("DRAGOMAN_") or variable in _RESERVED or _is_kubernetes(variable, value):
            continue
        if variable not in names:
            # Platforms and other programs set such names too: a list of all settings would be noise.
            near = get_close_matches(variable.removeprefix("DRAGOMAN_"), map(str.upper, SETTINGS), n=1)
            hint = f"; did you mean `DRAGOMAN_{near[0]}`?" if near else ""
            warn(f"environment {one_line(variable)}: there is no such setting, it is ignored{hint}")
        elif value:
            result[names[variable]] = _SettingValue(value, f"environment {variable}", is_text=True)
    return result


def _is_kubernetes(variable: str, value: str) -> bool:
    if variable.endswith("_PORT") and _KUBERNETES_PORT.fullmatch(value):
        return True
    return _KUBERNETES.fullmatch(variable) is not None


def _from_flags(flags: Mapping[str, Any]) -> dict[str, _SettingValue]:
    result: dict[str, _SettingValue] = {}
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        if name not in SETTINGS:
            flag_names = [info.flag for info in SETTINGS.values() if info.flag is not None]
            raise ConfigError(f"{flag}: there is no such setting{suggest_name(flag, flag_names)}")
        if value is not None:
            result[name] = _SettingValue(value, SETTINGS[name].flag or name, is_text=isinstance(value, str))
    return result


def _from_keywords(keywords: Mapping[str, Any]) -> dict[str, _SettingValue]:
    result: dict[str, _SettingValue] = {}
    for name, value in keywords.items():
        if name not in Settings.__struct_fields__:
            names = Settings.__struct_fields__
            raise ConfigError(f"keyword {name}: there is no such setting{suggest_name(name, names)}")
        if name == "reload" and value:
            raise ConfigError(
                "keyword reload: a Python program cannot reload itself: omit it, and start the agent with "
                "`dragoman serve FILE --reload`"
            )
        if name == "workers" and value not in (None, 1):
            raise ConfigError(
                "keyword workers: a Python program cannot start itself several times: omit it, and start the agent "
                f"with `dragoman serve FILE --workers {value}`"
            )
        if name == "limits":
            result |= _from_limits(value)
        elif value is not None:
            result[name] = _SettingValue(value, f"keyword {name}")
    return result


def _from_limits(value: Any) -> dict[str, _SettingValue]:
    names = Limits.__struct_fields__
    if isinstance(value, Limits):
        value = {name: getattr(value, name) for name in names}
    result: dict[str, _SettingValue] = {}
    for name, limit in _table({} if value is None else value, "keyword limits").items():
        if name not in names:
            raise ConfigError(f"keyword limits: there is no limit `{name}`{suggest_name(name, names)}")
        if limit is not None or name != "runs":  # the one limit that is not set by default
            result[f"limits_{name}"] = _SettingValue(limit, f"keyword limits[{values.as_json(name)}]")
    return result


def _read(name: str, setting: _SettingValue) -> Any:
    try:
        value = SETTINGS[name].parse(setting.value, setting.is_text)
    except ValueError as error:
        raise ConfigError(f"{setting.source}: {error}") from None
    if name == "store" and is_postgres_url(value):
        check_postgres(value, setting=setting.source)
    elif name == "store":
        path = parse_store(value, setting=setting.source)
        if path is not None and setting.base is not None:
            return f"sqlite:///{(setting.base / path).as_posix()}"
    if name in _FILES and setting.base is not None:
        return str(setting.base / value)
    return value


def suggest_name(name: str, names: Iterable[str], form: str = "{}") -> str:
    """Return the end of an error about an unknown name: the closest name, else all names."""
    names = list(names)
    near = get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean `{form.format(near[0])}`?"
    return f"; there are {', '.join(form.format(one) for one in names)}"
