"""Ids."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dragoman
from dragoman.compat.executor import new_id

UUID4 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@pytest.mark.requirement("S2-87")
def test_an_id_is_a_uuid_of_version_4() -> None:
    assert UUID4.fullmatch(new_id())


@pytest.mark.requirement("S2-87")
def test_no_two_ids_are_the_same() -> None:
    assert len({new_id() for _ in range(10_000)}) == 10_000


@pytest.mark.requirement("S2-99")
def test_ids_need_nothing_that_must_be_installed() -> None:
    source = Path(dragoman.__file__).parents[1]
    script = "from dragoman.compat.executor.ids import new_id; print(new_id())"
    # Without site (-S) there is nothing but the standard library and the folder given here.
    found = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path.insert(0, {str(source)!r}); {script}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert UUID4.fullmatch(found.stdout.strip())
