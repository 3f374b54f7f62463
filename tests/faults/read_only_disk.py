"""A folder that becomes read-only under the processes that have files open in it."""

from __future__ import annotations

from pathlib import Path

from faults.slow_disk import compiled


class ReadOnlyDisk:
    """Makes `folder` read-only and writable again, for processes that are started with `environment`."""

    def __init__(self, folder: Path, place: Path) -> None:
        """Compile the library into `place`. Skips the test where it cannot be made."""
        library = compiled("read_only_disk.c", place)
        folder = folder.resolve()
        self._mark = folder.with_name(f"{folder.name}.readonly")
        self.environment = {"LD_PRELOAD": str(library), "READ_ONLY_FOLDER": str(folder)}

    def refuse(self) -> None:
        """Refuse all writes from now on."""
        self._mark.touch()

    def allow(self) -> None:
        """Take writes again."""
        self._mark.unlink()
