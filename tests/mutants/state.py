"""What a run has found so far, in a file, and the results in the repository."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from .mutations import Mutation
from .trial import GONE, KILLED, SURVIVED, UNCOVERED, Outcome


class State:
    """The outcomes of one tree, each written when it is known: a run that is killed goes on where it was."""

    def __init__(self, path: Path, digest: str) -> None:
        self._path = path
        self.outcomes: dict[str, Outcome] = {}
        lines = path.read_text().splitlines() if path.is_file() else []
        if lines[:1] != [digest]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{digest}\n")
            return
        for line in lines[1:]:
            try:
                name, *fields = json.loads(line)
            except ValueError:  # the run was killed in the middle of this line
                continue
            self.outcomes[name] = Outcome(*fields)

    def add(self, name: str, outcome: Outcome) -> None:
        """Keep an outcome."""
        with self._path.open("a") as file:
            # A line that the end of the process has cut short does not spoil this one.
            file.write(f"\n{json.dumps([name, *outcome])}\n")
        self.outcomes[name] = outcome


def load_results(path: Path) -> dict[str, Outcome]:
    """Read the results of an earlier run."""
    if not path.is_file():
        return {}
    entries = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: Outcome(**entry) for name, entry in entries.items() if isinstance(entry, dict)}


def dump_results(commit: str, outcomes: Mapping[str, Outcome]) -> str:
    """Spell results, to be read by people, too."""
    counts = {kind: sum(each.outcome == kind for each in outcomes.values()) for kind in _KINDS}
    head = [f"# {number} {kind}" for kind, number in counts.items()]
    tables = [f"commit = {json.dumps(commit)}\n"]
    for name, outcome in sorted(outcomes.items()):
        fields = [f"{field} = {json.dumps(value)}" for field, value in outcome._asdict().items() if value]
        tables.append("\n".join([f"[{name}]", *fields, ""]))
    return "\n".join([*head, *tables])


def describe(outcomes: Mapping[str, Outcome], mutations: Mapping[str, Mutation]) -> str:
    """The counts, and each mutation that no test has killed."""
    lines: list[str] = []
    for kind in _KINDS:
        names = sorted(name for name, outcome in outcomes.items() if outcome.outcome == kind)
        lines.append(f"{len(names)} {kind}")
        if kind != KILLED:
            lines += [f"  {name:12} {_place(outcomes[name], mutations[name])}" for name in names]
    return "\n".join(lines)


def lost_kills(before: Mapping[str, Outcome], now: Mapping[str, Outcome]) -> list[str]:
    """The mutations that were killed before and are there, alive, now."""
    killed = [name for name, outcome in before.items() if outcome.outcome == KILLED]
    return sorted(name for name in killed if name in now and now[name].outcome not in (KILLED, GONE))


_KINDS = (KILLED, SURVIVED, UNCOVERED, GONE)


def _place(outcome: Outcome, mutation: Mutation) -> str:
    file = outcome.file or mutation.file
    tests = f", {outcome.tests} tests{' until the time was over' if outcome.is_cut else ''}" if outcome.tests else ""
    code = " ".join(mutation.code.split())
    becomes = " ".join(mutation.becomes.split())
    return f"{file}:{outcome.line or '?'} {mutation.function}, {mutation.kind}{tests}: {code} -> {becomes}"
