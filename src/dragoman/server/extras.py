"""What is not installed says how to get it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from dragoman.model.error import ConfigError

if TYPE_CHECKING:
    from types import ModuleType


def require(module: str, extra: str) -> ModuleType:
    """Import a module that comes with an extra.

    Raises:
        ConfigError: it, or something it needs, is not installed; the text is the command that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"needs dragoman[{extra}]: uv add 'dragoman[{extra}]'") from error
