"""Ids: that they are UUIDs, and nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from uuid import UUID

import pytest

from dragoman.model.ids import is_uuid, new_id


def test_every_id_is_a_random_uuid_and_no_other() -> None:
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert {UUID(one).version for one in ids} == {4}
    assert {UUID(one).variant for one in ids} == {"specified in RFC 4122"}
    assert all(is_uuid(one) for one in ids)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_gives_none_of_its_parents_ids() -> None:
    script = (
        "import os\n"
        "from dragoman.model.ids import new_id\n"
        "new_id()\n"
        "forked = os.fork()\n"
        "line = ' '.join(new_id() for _ in range(200)) + '\\n'\n"
        "os.write(1, line.encode())\n"
        "if forked: os.waitpid(forked, 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30)
    ids = done.stdout.split()
    assert len(ids) == len(set(ids)) == 400
