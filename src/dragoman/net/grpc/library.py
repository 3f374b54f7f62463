"""Imports grpcio, which is an extra and slow to import."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any

from dragoman.installation import install_line
from dragoman.model.error import ConfigError


def has_grpc() -> bool:
    """True when grpcio is installed."""
    return bool(sys.modules["grpc"]) if "grpc" in sys.modules else find_spec("grpc") is not None


def quiet_grpc() -> None:
    """Keep grpcio from logging on stderr what callers get as an error anyway, unless the user wants to see that.

    It reads the variable when it is imported.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def no_grpc_error(who: str = "gRPC") -> ConfigError:
    """Return the error of whoever needs gRPC where it is not installed; it says how to do that."""
    return ConfigError(f"{who} needs the extra `grpc`: {install_line('grpc')}")


def load_grpc() -> Any:
    """Import grpcio.

    Raises:
        ConfigError: it is not installed; the text says how to do that.
    """
    quiet_grpc()
    try:
        import grpc
        import grpc.aio  # pyright: ignore[reportUnusedImport] - what makes it an attribute of grpc
    except ImportError:
        raise no_grpc_error() from None
    return grpc
