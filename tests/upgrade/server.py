"""The server and the commands of a user of an earlier version, and a receiver for their webhooks."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from support.command import clean_environment, dragoman
from support.server_process import ServerProcess
from support.webhook_receiver import Delivery, WebhookReceiver

PROGRAM = Path(__file__).with_name("program")


def copy_program(folder: Path) -> None:
    """Put the user's programs and settings into a folder."""
    for name in ("dragoman.toml", "tools.py", "trips.py"):
        shutil.copy(PROGRAM / name, folder / name)


def user_environment(**more: str) -> dict[str, str]:
    """The environment of the user: `python` is the one with the package."""
    return clean_environment(**{"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", **more})


def start_server(folder: Path, *flags: str, **environment: str) -> ServerProcess:
    """`dragoman serve` in the user's folder, with the user's settings file."""
    address = r"^serving .* at (http://\S+)"
    return ServerProcess.serve(folder, *flags, environment=user_environment(**environment), store=None, address=address)


def port_of(server: ServerProcess) -> int:
    """The port of a server that is ready."""
    return int(server.url.rpartition(":")[2])


def run_command(folder: Path, *words: str, text: str | None = None, **environment: str) -> str:
    """What a command of the user prints. Raises AssertionError when it fails."""
    ended = dragoman(folder, *words, environment=user_environment(**environment), typed=text)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


class Receiver(WebhookReceiver):
    """Accepts the webhooks to `/delivered`, and those to `/owed` with `accepts_owed`. The store has its port."""

    def __init__(self, port: int, *, accepts_owed: bool) -> None:
        def answer(delivery: Delivery) -> int:
            return 200 if accepts_owed or delivery.path == "/delivered" else 503

        super().__init__(answer, port=port)

    def wait_end(self, path: str) -> list[Delivery]:
        """Wait until the end of a task has been accepted at a path, and return what was accepted there."""
        self.wait_for(lambda: any(each.is_final and each.is_accepted and each.path == path for each in self.requests))
        return [each for each in self.accepted if each.path == path]
