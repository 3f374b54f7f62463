"""A command of a test's shell: has a warm process (see warm_start.py) run it, and stands for it.

The command gets this process's arguments, folder, environment and streams, and the signals that it receives. This
process ends as the command does; if it is killed, so is the command. It imports little, to start in no time.
"""

# Without pathlib, which takes its time.
# ruff: noqa: PTH109, PTH118, PTH120

from __future__ import annotations

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


def main() -> int:
    """Run a command; gives its exit code, negative for the signal that ended it."""
    address, called, *arguments = sys.argv[1:]
    # The command sees what it would see without this process: the real `dragoman` on the PATH.
    folder, name = os.path.split(called)
    script = called if name.endswith(".py") else os.path.join(os.path.dirname(sys.executable), name)
    path = os.pathsep.join(each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if each != folder)
    ignored = [number for number in PASSED_ON if signal.getsignal(number) is signal.SIG_IGN]
    request = {
        "script": script,
        "arguments": arguments,
        "folder": os.getcwd(),
        "environment": {**os.environ, "PATH": path},
        "leads": True,
        "ignored": ignored,
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(f"\0{address}")
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        pid = int(connection.recv(20))
        for number in PASSED_ON:
            if number not in ignored:
                signal.signal(number, lambda number, _: os.kill(pid, number))
        return os.waitstatus_to_exitcode(int(connection.recv(20)))


if __name__ == "__main__":
    code = main()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
