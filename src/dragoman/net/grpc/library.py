"""Imports grpcio, which is an extra and slow to import."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any

from dragoman.model.error import ConfigError

INSTALL = "pip install 'dragoman[grpc]'"


def has_grpc() -> bool:
    """True when grpcio is installed."""
    return bool(sys.modules["grpc"]) if "grpc" in sys.modules else find_spec("grpc") is not None


def load_grpc() -> Any:
    """Import grpcio.

    Raises:
        ConfigError: it is not installed; the text says how to do that.
    """
    # It logs what callers get as an error anyway, unless the user wants to see that.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        import grpc
        import grpc.aio  # pyright: ignore[reportUnusedImport] - what makes it an attribute of grpc
    except ImportError:
        raise ConfigError(f"gRPC needs more packages: {INSTALL}") from None
    return grpc
