"""Copies of the repository's tree, in which mutations are applied; the working tree itself is never changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import cache_from_source
from pathlib import Path

from .mutations import Mutation, Place, apply

ROOT = Path(__file__).resolve().parents[2]
# Everything that a run leaves behind is in here; git ignores it.
DATA = ROOT / ".mutants"
# What `make` has installed is used where it is.
_LINKED = (".venv", ".peers")


class Tree:
    """A copy of the repository's files, as they are now, whether they are committed or not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "src" / "dragoman"

    @classmethod
    def copy(cls, root: Path, folder: Path) -> Tree:
        """Copy a repository into a folder, which is replaced, and compile its package."""
        shutil.rmtree(folder, ignore_errors=True)
        for name in list_files(root):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target, follow_symlinks=False)
        for name in _LINKED:
            if (root / name).exists():
                (folder / name).symlink_to((root / name).resolve())
        command = [sys.executable, "-m", "compileall", "-q", "-j", "2", folder / "src"]
        subprocess.run(command, check=True)
        return cls(folder)

    @classmethod
    def copy_of(cls, tree: Tree, folder: Path) -> Tree:
        """Copy a copy, with what is compiled of it."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tree.folder, folder, symlinks=True)
        return cls(folder)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that imports this copy, and so do all processes that it starts."""
        environment = {**os.environ, "PYTHONPATH": str(self.folder / "src")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return environment

    @contextmanager
    def mutated(self, mutation: Mutation, place: Place) -> Generator[None]:
        """Apply a mutation as long as the context lasts."""
        path = self.source / place.file
        before = path.stat()
        text = path.read_bytes()
        try:
            path.write_text(apply(self.source, mutation, place), encoding="utf-8")
            _forget_bytecode(path)
            yield
        finally:
            path.write_bytes(text)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            _forget_bytecode(path)


def list_files(root: Path) -> list[str]:
    """The files of a working tree, with those that git does not know yet, in their order."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in set(listed.split("\0")) if name and (root / name).is_file())


def digest(root: Path) -> str:
    """What the package and its tests are: the same for equal files."""
    sums = sha256()
    for name in list_files(root):
        # The list and the results are written by the run itself.
        if name.startswith(("src/", "tests/", "pyproject.toml")) and not name.startswith("tests/mutants/"):
            sums.update(f"{name}\0{sha256((root / name).read_bytes()).hexdigest()}\n".encode())
    return sums.hexdigest()


def _forget_bytecode(path: Path) -> None:
    # Python compares the size and the second of a file: two mutations can have both in common.
    Path(cache_from_source(str(path))).unlink(missing_ok=True)
