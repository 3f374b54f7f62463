"""A folder that becomes read-only under the processes that have files open in it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 60
SOURCE = Path(__file__).with_name("read_only_disk.c")


class ReadOnlyDisk:
    """Makes `folder` read-only and writable again, for processes that are started with `environment`."""

    def __init__(self, folder: Path, place: Path) -> None:
        """Compile the library into `place`. Skips the test where it cannot be made."""
        compiler = shutil.which("cc")
        if compiler is None or sys.platform != "linux":
            pytest.skip("a disk that becomes read-only needs Linux and a C compiler called cc")
        library = place / "read_only_disk.so"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
        library.chmod(0o755)
        folder = folder.resolve()
        self._mark = folder.with_name(f"{folder.name}.readonly")
        self.environment = {"LD_PRELOAD": str(library), "READ_ONLY_FOLDER": str(folder)}

    def refuse(self) -> None:
        """Refuse all writes from now on."""
        self._mark.touch()

    def allow(self) -> None:
        """Take writes again."""
        self._mark.unlink()
