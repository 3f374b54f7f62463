"""The port of a server: a socket that is bound to it, or a reservation for several processes that share it."""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from contextlib import closing
from typing import cast

from dragoman.model.error import ConfigError

# How long workers that have lost their supervisor may take to close the port, in seconds.
ORPHAN_SECONDS = 3.0
_POLL_SECONDS = 0.05
_NO_SHARING = (
    "several workers need Linux, where the kernel spreads connections over processes that listen on one port: use "
    "--workers 1, or start several servers, each on a port of its own, behind a proxy"
)


# A port to suggest, by flag.
_USUAL = {"--port": 8080, "--grpc": 50051, "--metrics": 9464}


class PortInUse(ConfigError):
    """Another program listens on the port that a flag has set."""

    def __init__(self, message: str, flag: str = "--port") -> None:
        super().__init__(message)
        self.flag = flag


class SharedPort:
    """A port that is reserved for processes which listen on it together, each with `bind_shared`.

    The reservation itself does not listen. As long as it lasts, other servers are refused the port, even if no process
    listens. Two reservations of one port are never possible at the same time.
    """

    def __init__(self, host: str, port: int, *, flag: str = "--port") -> None:
        """Reserve a port; 0 is any free one. Workers of a supervisor that has just been killed are waited for.

        `flag` is what has set it, for errors.

        Raises:
            ConfigError: the address cannot be had.
        """
        check_sharing()
        until = time.monotonic() + ORPHAN_SECONDS
        while True:
            try:
                self._socket = _reserve(host, port, flag)
            except PortInUse:
                if time.monotonic() > until or not _is_shared(host, port):
                    raise
                time.sleep(_POLL_SECONDS)
            else:
                break
        self.number = _port_of(self._socket)

    def close(self) -> None:
        """Give the port up. Processes that listen on it still have it."""
        self._socket.close()


def check_sharing() -> None:
    """Raise ConfigError on a system where processes cannot listen on one port together."""
    if sys.platform != "linux":
        raise ConfigError(_NO_SHARING)


def bind(host: str, port: int, *, flag: str = "--port") -> socket.socket:
    """Bind a socket to an address, without listening. Raises ConfigError when it cannot be had; it names the flag."""
    # On Windows, SO_REUSEADDR would let two servers share the port.
    return _bind(host, port, *((socket.SO_REUSEADDR,) if os.name == "posix" else ()), flag=flag)


def bind_shared(host: str, port: int) -> socket.socket:
    """Bind a socket to a port that is reserved, beside those of other processes, without listening.

    Raises:
        ConfigError: somebody else has the port.
    """
    return _bind(host, port, socket.SO_REUSEADDR, socket.SO_REUSEPORT)


def _bind(host: str, port: int, *options: int, flag: str = "--port") -> socket.socket:
    try:
        candidates = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise ConfigError(f"host `{host}` cannot be resolved: use 127.0.0.1, or 0.0.0.0 for every network") from None
    family, kind, protocol, _, address = candidates[0]
    listener = socket.socket(family, kind, protocol)
    try:
        for option in options:
            listener.setsockopt(socket.SOL_SOCKET, option, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise listen_error(error, host, port, flag) from error
    return listener


def _reserve(host: str, port: int, flag: str) -> socket.socket:
    """Bind a socket that does not listen and lets others of this user bind theirs. Raises ConfigError."""
    # Of all who try at once, the kernel lets one listen alone. Only that one goes on: SO_REUSEPORT alone would let
    # everybody in.
    with closing(bind(host, port, flag=flag)) as alone:
        try:
            alone.listen(1)
        except OSError as error:
            raise listen_error(error, host, port, flag) from error
        alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reservation = bind_shared(host, _port_of(alone))
        # It was needed for connections that are still closing. Without it, nobody can listen who does not share the
        # port; so this comes before `alone` is closed.
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    return reservation


def _is_shared(host: str, port: int) -> bool:
    """True when all who have the port share it, and belong to this user: perhaps they are about to close it."""
    try:
        bind_shared(host, port).close()
    except ConfigError:
        return False
    return True


def listen_error(error: OSError, host: str, port: int, flag: str = "--port") -> ConfigError:
    """Return what is wrong with an address, and what to use instead of it with the flag that has set it."""
    if error.errno == errno.EADDRINUSE:
        text = f"port {port} is in use: use {flag} {free_port(host, port)}, or {flag} 0 for any free one"
        return PortInUse(text, flag)
    if error.errno == errno.EADDRNOTAVAIL:
        return ConfigError(
            f"host {host} is not an address of this machine: use 127.0.0.1, or 0.0.0.0 for every network"
        )
    if error.errno == errno.EACCES:
        return ConfigError(f"this user may not listen on port {port}: use {flag} {_USUAL[flag]}, or any port from 1024")
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror}")


def is_free(host: str, port: int) -> bool:
    """True unless another program listens on a port."""
    try:
        bind(host, port).close()
    except ConfigError as error:
        return not isinstance(error, PortInUse)
    return True


def free_port(host: str, used_port: int) -> int:
    """Return a port that is free on this address: one of the next twenty, else any."""
    for port in (*range(used_port + 1, min(used_port + 21, 65536)), 0):
        try:
            with closing(socket.create_server((host, port), family=_family(host))) as free:
                return _port_of(free)
        except OSError:
            continue
    return 0


def _family(host: str) -> socket.AddressFamily:
    return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][0]


def _port_of(bound: socket.socket) -> int:
    return cast("int", bound.getsockname()[1])
