"""The pipes of a program, where the system has no more of them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dragoman.agents.process.guard.spawner import Pipes


def is_open(descriptor: int) -> bool:
    return Path(f"/proc/self/fd/{descriptor}").is_symlink()


@pytest.mark.parametrize("available", [0, 1, 2])
def test_when_a_later_pipe_cannot_be_opened_the_earlier_ones_are_closed(
    available: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    pipe = os.pipe

    def few() -> tuple[int, int]:
        if len(opened) == 2 * available:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        ends = pipe()
        opened.extend(ends)
        return ends

    monkeypatch.setattr(os, "pipe", few)
    with pytest.raises(OSError, match="Too many open files"):
        Pipes()
    assert len(opened) == 2 * available
    assert [each for each in opened if is_open(each)] == []
