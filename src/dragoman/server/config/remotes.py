"""Named remote agents: `[remotes.NAME]` in the settings file and in the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from dragoman.model.error import ConfigError
from dragoman.server.config import values
from dragoman.server.config.loader import ConfigFile, find_config, suggest_name

_KEYS = ("url", "token_env", "protocol")


class Remote(Struct, frozen=True, kw_only=True):
    """A named remote agent: its URL, the environment variable with its token, and the protocol version."""

    name: str
    url: str
    token_env: str | None = None
    protocol: str | None = None


def load_remotes(*, environ: Mapping[str, str], cwd: Path) -> dict[str, Remote]:
    """Load the remotes of the settings file and of the user's file; the former take precedence.

    Raises:
        ConfigError: a file cannot be used, or a table in it is wrong.
    """
    remotes: dict[str, Remote] = {}
    user = user_config(environ)
    files = (
        find_config(user, environ=environ, cwd=cwd) if user is not None and user.is_file() else None,
        find_config(None, environ=environ, cwd=cwd),
    )
    for file in files:
        if file is not None:
            remotes |= {name: _remote(file, name, table) for name, table in file.remotes.items()}
    return remotes


def user_config(environ: Mapping[str, str]) -> Path | None:
    """Return the path of the user's own file: `dragoman/dragoman.toml` under `$XDG_CONFIG_HOME` or `~/.config`."""
    base = environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification ignores a relative path.
    if Path(base).is_absolute():
        return Path(base) / "dragoman" / "dragoman.toml"
    home = environ.get("HOME") or environ.get("USERPROFILE")
    return Path(home) / ".config" / "dragoman" / "dragoman.toml" if home else None


def _remote(file: ConfigFile, name: str, table: dict[str, Any]) -> Remote:
    source = f"{file.label} [remotes.{name}]"
    for key, value in table.items():
        if key not in _KEYS:
            raise ConfigError(f"{source}: there is no setting `{key}`{suggest_name(key, _KEYS)}")
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{source} {key}: must be text, not {values.as_json(value)}")
    url = table.get("url", "")
    if not url.startswith(("http://", "https://", "grpc://", "grpcs://")):
        raise ConfigError(f'{source}: say where it is, as in url = "https://agents.example.com"')
    return Remote(name=name, url=url, token_env=table.get("token_env"), protocol=table.get("protocol"))
