"""Imports grpcio, which is an extra and slow to import."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any

from dragoman.model.error import ConfigError


def has_grpc() -> bool:
    """True when grpcio is installed."""
    return bool(sys.modules["grpc"]) if "grpc" in sys.modules else find_spec("grpc") is not None


def quiet_grpc() -> None:
    """Keep grpcio from logging on stderr what callers get as an error anyway, unless the user wants to see that.

    It reads the variable when it is imported.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


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
        raise needs_grpc() from None
    return grpc


def needs_grpc(who: str = "gRPC") -> ConfigError:
    """Build the error for what needs grpcio where that is not installed."""
    from dragoman.installation import install_line

    return ConfigError(f"{who} needs the extra `grpc`: {install_line('grpc')}")
