"""Ports for servers that are started again at the same address."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """A port that stays free between two servers: none of those that connections are given by themselves."""
    while True:
        port = random.randint(20_000, 32_000)
        with socket.socket() as tried:
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
