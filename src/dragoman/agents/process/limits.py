"""How much a program may use."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from dragoman.model.error import ConfigError


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of one program; 0 is no limit. Times are in seconds, sizes in bytes.

    `cpu`, `memory` (address space), `files` (open at once) and `file_size` are the operating system's to watch.
    `output` is all that it may write to its standard output, `time` how long it may run, and `inactivity` how long it
    may say nothing, or wait for an answer. `artifacts` is how much of its files is taken as results. An interactive
    program that has been silent for `quiet` waits for input. One that is to end has `grace` to do so by itself.
    At most `sessions` programs run at once; other tasks wait for their turn.
    """

    cpu: int = 0
    memory: int = 0
    files: int = 0
    file_size: int = 0
    output: int = 10_000_000
    time: float = 0
    inactivity: float = 1800
    artifacts: int = 10_000_000
    quiet: float = 1.0
    grace: float = 3.0
    sessions: int = 256


# The largest number the operating system takes.
_MOST = 2**63 - 1
_WHOLE = ("cpu", "memory", "files", "file_size", "output", "artifacts", "sessions")


def limits_of(given: Limits | Mapping[str, Any] | None) -> Limits:
    """Limits as a user gives them. Raises ConfigError."""
    if given is None:
        return Limits()
    if isinstance(given, Limits):
        return given
    read: dict[str, Any] = {}
    for name, value in given.items():
        if name not in Limits.__struct_fields__:
            near = difflib.get_close_matches(name, Limits.__struct_fields__, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(Limits.__struct_fields__)}"
            raise ConfigError(f"limits: there is no limit `{name}`; {hint}")
        read[name] = _number(name, value)
    return Limits(**read)


def _number(name: str, value: Any) -> float:
    """A number, also where it comes as text from a command line."""
    kind = int if name in _WHOLE else float
    try:
        if isinstance(value, bool):
            raise TypeError
        number = kind(value)
        if not 0 <= number <= _MOST or (not isinstance(value, str) and number != value):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        what = "a whole number" if kind is int else "a number"
        raise ConfigError(f"limits: {name} is {what}, 0 or more, not {value!r}") from None
    if name in ("quiet", "sessions") and not number:
        raise ConfigError(f"limits: {name} must be more than 0")
    return number
