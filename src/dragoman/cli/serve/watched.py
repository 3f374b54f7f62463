"""The files that `serve --reload` watches: the code of the targets, and the settings file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from dragoman.model.error import ConfigError
from dragoman.server.agent.target import locate_target
from dragoman.server.config.loader import find_config

if TYPE_CHECKING:
    from dragoman.cli.serve.options import ServeArguments

_IGNORED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})


class WatchedFiles(NamedTuple):
    """What starts the agents again: every Python file in the folders, and single files."""

    folders: frozenset[Path]
    files: frozenset[Path]

    @property
    def paths(self) -> set[Path]:
        """The folders to watch. Files are watched through their folder, because editors replace them."""
        return {path for path in (*self.folders, *(file.parent for file in self.files)) if path.is_dir()}

    def changed(self, paths: Iterable[str]) -> list[Path]:
        """Return those of the changed paths that count."""
        return sorted(path for path in {Path(each) for each in paths} if self._counts(path))

    def _counts(self, path: Path) -> bool:
        if path in self.files:
            return True
        return path.suffix == ".py" and any(
            path.is_relative_to(folder) and not any(map(_is_ignored, path.relative_to(folder).parent.parts))
            for folder in self.folders
        )


def _is_ignored(folder: str) -> bool:
    # Programs work in folders below `tasks.db.sessions`, and may write Python files there.
    return folder.startswith(".") or folder in _IGNORED_FOLDERS or folder.endswith(".sessions")


def watched_files(arguments: ServeArguments, cwd: Path) -> WatchedFiles:
    """Return the code of the targets, the settings file, and the scripts that commands name."""
    targets = [(target, cwd) for target in (*arguments.targets, *arguments.framework_targets)]
    commands: list[tuple[Any, Path]] = [(command, cwd) for command in arguments.commands]
    files: set[Path] = set()
    config = (cwd / (arguments.config or os.environ.get("DRAGOMAN_CONFIG") or "dragoman.toml")).resolve()
    if config.is_file():
        files.add(config)
        if not arguments.names_agents:
            for key, value in _values_of_agents(arguments.config, cwd):
                if key in ("target", *arguments.frameworks) and isinstance(value, str):
                    targets.append((value, config.parent))
                elif key in ("mcp", "command"):
                    commands.append((value, config.parent))
    places = [place for target, folder in targets if (place := locate_target(target, cwd=folder)) is not None]
    # Agents import their siblings, and whatever is in the current folder.
    folders = {cwd if place.is_relative_to(cwd) else place for place in places}
    files.update(script.resolve() for command, folder in commands for script in _scripts(command, folder))
    return WatchedFiles(frozenset(folders), frozenset(files))


def _values_of_agents(config: Path | None, cwd: Path) -> Iterator[tuple[str, Any]]:
    try:
        file = find_config(config, environ=os.environ, cwd=cwd)
    except ConfigError:
        return  # who serves reports it
    if file is not None:
        for table in file.agents.values():
            yield from table.items()


def _scripts(command: Any, folder: Path) -> Iterator[Path]:
    """Yield the files that a command names, or several commands, as in `python server.py`."""
    if isinstance(command, list):
        for each in cast("list[Any]", command):
            yield from _scripts(each, folder)
    elif isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError:
            return  # who serves reports it
        yield from (folder / word for word in words[1:] if (folder / word).is_file())
        if len(words) == 1 and words[0].endswith(".py"):
            yield folder / words[0]
