"""Installs this server in the configuration file of an MCP host, leaving everything else in the file as it is."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from dragoman.installation import requirement
from dragoman.model.error import ConfigError

NAME = "dragoman"
Json = dict[str, Any]
# Folders in uv's cache, whose contents are temporary.
_UV_CACHE_FOLDER = re.compile(r"(archive|environments|builds)-v\d+")


class McpHost(Struct, frozen=True, kw_only=True):
    """A program that starts MCP servers. `variable` is its syntax for an environment variable, {} for the name."""

    title: str
    key: str
    variable: str | None = None
    typed: bool = False


HOSTS: dict[str, McpHost] = {
    "claude-desktop": McpHost(title="Claude Desktop", key="mcpServers"),
    "claude-code": McpHost(title="Claude Code", key="mcpServers", variable="${{{}:-}}"),
    "cursor": McpHost(title="Cursor", key="mcpServers", variable="${{env:{}}}"),
    "vscode": McpHost(title="VS Code", key="servers", variable="${{env:{}}}", typed=True),
}


# -- the entry -------------------------------------------------------------------------------------------------------


def launch_command(*arguments: str, environ: Mapping[str, str], program: str | None = None) -> list[str]:
    """Return the command that starts this server from any directory. `program` is the path this one was started by.

    Raises:
        ConfigError: it runs from uv's cache, and uvx cannot be found.
    """
    if _is_in_uv_cache(Path(sys.prefix), environ):
        return [_find_uvx(environ), "--from", requirement("mcp"), "dragoman", "mcp", *arguments]
    suffix = ".exe" if os.name == "nt" else ""
    invoked_path = Path(program if program is not None else sys.argv[0]).absolute()
    # Links are not resolved: the link that was typed may outlive its target.
    for script in (invoked_path.with_suffix(suffix), Path(sysconfig.get_path("scripts")) / f"dragoman{suffix}"):
        if script.stem == "dragoman" and script.is_file() and os.access(script, os.X_OK):
            return [str(script), "mcp", *arguments]
    # -P: modules in the host's working directory must not be imported.
    return [sys.executable, "-P", "-m", "dragoman.cli.main", "mcp", *arguments]


def build_entry(host: str, command: Sequence[str], variables: Sequence[str]) -> Json:
    """Build a host's entry for this server. It refers to `variables` by name; their values are never written."""
    result: Json = {"type": "stdio"} if HOSTS[host].typed else {}
    result |= {"command": command[0], "args": list(command[1:])}
    if variables:
        result["env"] = {name: _variable_value(host, name) for name in variables}
    return result


def snippet(host: str, entry: Json) -> str:
    """Return the part of the host's file that configures this server."""
    return json.dumps({HOSTS[host].key: {NAME: entry}}, indent=2, ensure_ascii=False)


def claude_command(entry: Json) -> str:
    """Return the shell command that has Claude Code write the entry itself."""
    env = [word for name, value in entry.get("env", {}).items() for word in ("--env", f"{name}={value}")]
    return shlex.join(["claude", "mcp", "add", NAME, *env, "--", entry["command"], *entry["args"]])


def variables_to_fill(host: str, entry: Json) -> list[str]:
    """Return the variables whose values the user has to write into the host's file."""
    return [
        name
        for name, value in entry.get("env", {}).items()
        if value == _variable_value(host, name) == placeholder(name)
    ]


def placeholder(variable: str) -> str:
    """Return the placeholder for a value that the user has to write."""
    return f"<put the value of {variable} here>"


def is_unset(variable: str, value: str) -> bool:
    """True when a variable has no value: it is empty, or the host passed its placeholder through."""
    return not value or value == placeholder(variable) or value.startswith("${")


def _variable_value(host: str, variable: str) -> str:
    form = HOSTS[host].variable
    return placeholder(variable) if form is None else form.format(variable)


def _is_in_uv_cache(prefix: Path, environ: Mapping[str, str]) -> bool:
    cache = environ.get("UV_CACHE_DIR")
    if cache and prefix.is_relative_to(Path(cache).absolute()):
        return True
    return any(_UV_CACHE_FOLDER.fullmatch(part) for part in prefix.parts)


def _find_uvx(environ: Mapping[str, str]) -> str:
    # uv passes its own path to programs it starts; uvx is in the same directory.
    beside = [str(Path(environ["UV"]).parent)] if environ.get("UV") else []
    path = shutil.which("uvx", path=os.pathsep.join([*beside, environ.get("PATH", os.defpath)]))
    if path is None:
        raise ConfigError("uvx is not found, and this copy in uv's cache is temporary: put uvx on the PATH")
    return str(Path(path).absolute())


# -- the path --------------------------------------------------------------------------------------------------------


def config_path(host: str, *, environ: Mapping[str, str], cwd: Path, platform: str = sys.platform) -> Path:
    """Return the path of the file that configures a host's MCP servers."""
    if host == "claude-code":
        return cwd / ".mcp.json"
    if host == "vscode":
        return cwd / ".vscode" / "mcp.json"
    home = Path(environ.get("HOME") or environ.get("USERPROFILE") or Path.home())
    if host == "cursor":
        return home / ".cursor" / "mcp.json"
    if platform == "darwin":
        base = home / "Library" / "Application Support"
    elif platform == "win32":
        base = Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        base = Path(environ.get("XDG_CONFIG_HOME", ""))
        base = base if base.is_absolute() else home / ".config"
    return base / "Claude" / "claude_desktop_config.json"


# -- writing ---------------------------------------------------------------------------------------------------------


def write_entry(path: Path, host: str, entry: Json) -> Json | None:
    """Write the entry into a host's file and leave the rest of the file as it is.

    The original file is copied to `.bak` beside it, unless there is such a copy from an earlier run. Values that the
    user has set for variables are preserved. Returns the entry as it is in the file now, or None when nothing changed.

    Raises:
        ConfigError: the file cannot be parsed, or cannot be written.
    """
    # A symlink is kept: its target is changed.
    path = path.resolve()
    try:
        before = path.read_bytes() if path.exists() else None
        text = "" if before is None else before.decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _refuse_to_change(path, "is not UTF-8 text") from None
    document = _parse_document(path, text)
    servers = document.setdefault(HOSTS[host].key, {})
    if not isinstance(servers, dict):
        raise _refuse_to_change(path, f'has something else than a table under "{HOSTS[host].key}"')
    entries = cast("Json", servers)
    existing = entries.get(NAME)
    merged = _merge(existing, entry)
    if existing == merged:
        return None
    entries[NAME] = merged
    try:
        after = f"{json.dumps(document, indent=_indent(text), ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:
        raise _refuse_to_change(path, "has half a character in it") from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = None if before is None else path.stat().st_mode & 0o777
        copy = path.with_name(f"{path.name}.bak")
        if before is not None and not copy.exists():
            _replace(copy, before, mode)
        _replace(path, after, mode)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}: --print shows what to put there") from None
    return merged


def _parse_document(path: Path, text: str) -> Json:
    if not text.strip():
        return {}
    try:
        document: Any = json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    except (ValueError, RecursionError) as error:
        raise _refuse_to_change(path, f"is not JSON ({error})") from None
    if not isinstance(document, dict):
        raise _refuse_to_change(path, "is not a JSON object")
    return cast("Json", document)


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> Json:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a key stands in it twice")
    return document


def _refuse_to_change(path: Path, why: str) -> ConfigError:
    return ConfigError(f"{path} {why}, and is left as it is: mend it, or add by hand what --print shows")


def _merge(existing: object, entry: Json) -> Json:
    """Return the new entry with what the user has added to the existing one."""
    if not isinstance(existing, dict) or "command" not in existing:
        return entry
    old = cast("Json", existing)
    env: Any = old.get("env")
    user_env = {name: value for name, value in cast("Json", env).items() if value} if isinstance(env, dict) else {}
    merged = {**old, **entry}
    if user_env or "env" in entry:
        merged["env"] = {**entry.get("env", {}), **user_env}
    return merged


def _indent(text: str) -> int | str:
    match = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return match[1] if match else 2


def _replace(path: Path, data: bytes, mode: int | None) -> None:
    """Replace a file atomically, never readable by more users than `mode` allows."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    file = os.open(part, flags, 0o666 if mode is None else mode)
    try:
        with os.fdopen(file, "wb") as writing:
            if mode is not None:
                part.chmod(mode)  # whatever the umask took away
            writing.write(data)
            writing.flush()
            os.fsync(writing.fileno())
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
