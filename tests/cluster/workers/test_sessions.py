"""Conversations with programs belong to one worker, and go on when that one was killed."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.processes.nodes import NodeProcess
from cluster.workers.supervised import children
from support.command import DRAGOMAN, clean_environment

from dragoman import Task, sync

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
# It keeps what it was sent in the folder of its conversation, and says how much that is.
PROGRAM = "sh -c 'cat >> log; echo >> log; wc -l < log'"
LOGS = ".dragoman/*.sessions/*/*/log"


@pytest.fixture
def server(tmp_path: Path, postgres_url: str) -> Iterator[NodeProcess]:
    flags = ["--workers", "2", "--port", "0", "--no-push", "--node", "web", "--store", postgres_url]
    server = NodeProcess([*DRAGOMAN, "serve", "--command", PROGRAM, *flags], tmp_path, clean_environment(tmp_path))
    server.ready()
    yield server
    server.stop()
    server.wait()
    print(*server.output)


def test_a_conversation_goes_on_in_its_folder_after_its_worker_was_killed(server: NodeProcess, tmp_path: Path) -> None:
    (port,) = {found[1] for line in server.output if (found := re.search(r"at http://127\.0\.0\.1:(\d+)", line))}

    def send(text: str, **options: str) -> Task:
        # A new connection for each, so that both workers get some.
        with sync.Client(f"http://127.0.0.1:{port}") as client:
            return client.send(text, **options)

    answers = [send("first") for _ in range(12)]
    assert {answer.text.strip() for answer in answers} == {"1"}
    folders = Counter(path.parts[-4] for path in tmp_path.glob(LOGS))
    assert len(folders) == 2, "both workers have conversations, each in a folder of its own"
    for number, pid in enumerate(children(server.pid), 2):
        os.kill(pid, signal.SIGKILL)
        texts = [send("more", context=answer.context_id).text.strip() for answer in answers]
        assert set(texts) == {str(number)}
    assert Counter(path.parts[-4] for path in tmp_path.glob(LOGS)) == folders
