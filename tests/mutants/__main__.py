"""Mutates the code of the package in 60 places, one at a time, and finds out which mutations a test notices.

    make mutants                     record which test runs which line, unless this tree's are recorded; then mutate
    make mutants ARGS=--contexts     record only
    make mutants ARGS=--recorded     mutate the tree that was recorded last, although the working tree has changed
    make mutants ARGS=--accept       write the results even if a mutation survives that was killed before
    make mutants ARGS=--choose       choose a new list, and write it to mutations.toml

Killed and started again, it goes on where it was. What it leaves behind is in `.mutants/`; the results are written to
`tests/mutants/results.toml`, with which the next run is compared.
"""

from __future__ import annotations

import argparse
import queue
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .contexts import Contexts, is_recorded, record
from .mutations import PACKAGES, Mutation, choose, dump, list_candidates, load
from .state import State, describe, dump_results, load_results, lost_kills
from .tree import DATA, ROOT, Tree, digest
from .trial import Trial

HERE = Path(__file__).parent
LIST = HERE / "mutations.toml"
RESULTS = HERE / "results.toml"
CONTEXTS = DATA / "contexts"
# The commit and the digest of the tree that was recorded.
RECORDED = DATA / "recorded"
SEED = "dragoman"
PER_PACKAGE = 12
# Of a clock on the wall. A mutation that stops everything is noticed sooner, by the time limit of its first test.
SECONDS = 240.0


def main() -> int:
    """Run the command. Its status is 1 if a mutation survives that was killed before."""
    parser = argparse.ArgumentParser(description="Mutate the code, and see which test notices.")
    parser.add_argument("--contexts", action="store_true", help="only record which test runs which line")
    parser.add_argument("--recorded", action="store_true", help="use the recorded tree, although it has changed since")
    parser.add_argument("--accept", action="store_true", help="write the results, whatever they are")
    parser.add_argument("--choose", action="store_true", help="choose a new list of mutations")
    parser.add_argument("--jobs", type=int, default=2, help="how many mutations are tried at a time (2)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"the time limit of a mutation ({SECONDS})")
    options = parser.parse_args()
    if options.choose:
        source = ROOT / "src" / "dragoman"
        chosen = [
            mutation for name in PACKAGES for mutation in choose(list_candidates(source, name), PER_PACKAGE, SEED)
        ]
        LIST.write_text(dump(chosen), encoding="utf-8")
        return 0
    tree = _recorded_tree(options.jobs, keep=options.recorded)
    return 0 if options.contexts else _mutate(tree, options.jobs, options.seconds, accept=options.accept)


def _recorded_tree(jobs: int, *, keep: bool) -> Tree:
    folder = DATA / "tree"
    recorded = RECORDED.read_text().split() if RECORDED.is_file() and is_recorded(CONTEXTS) else []
    now = digest(ROOT)
    if recorded and (keep or recorded[1] == now):
        return Tree(folder)
    print("recording which test runs which line …", flush=True)
    RECORDED.unlink(missing_ok=True)
    DATA.mkdir(exist_ok=True)
    tree = Tree.copy(ROOT, folder)
    record(tree, CONTEXTS, jobs)
    RECORDED.write_text(f"{_commit()} {now}")
    return tree


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _mutate(tree: Tree, jobs: int, seconds: float, *, accept: bool) -> int:
    commit, recorded = RECORDED.read_text().split()
    mutations, before = load(LIST), load_results(RESULTS)
    contexts = Contexts(CONTEXTS)
    print(f"{len(contexts.passed)} tests are recorded, and {len(contexts.failed)} that failed or were skipped")
    state = State(DATA / "state.jsonl", recorded)
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in mutations:
        if name not in state.outcomes:
            left.put(name)
    tests = {name: outcome.test for name, outcome in before.items()}
    with ThreadPoolExecutor(jobs) as pool:
        trials = [pool.submit(_new_trial, tree, DATA / f"slot-{slot}", seconds) for slot in range(jobs)]
        runs = [pool.submit(_work, trial.result(), left, mutations, tests, state) for trial in trials]
    for run in runs:
        run.result()
    now = {name: state.outcomes[name] for name in mutations}
    lost = lost_kills(before, now)
    print(describe(now, mutations))
    if lost:
        print(f"killed before, and not now: {', '.join(lost)}")
    if accept or not lost:
        RESULTS.write_text(dump_results(commit, now), encoding="utf-8")
    return 1 if lost else 0


def _new_trial(recorded: Tree, folder: Path, seconds: float) -> Trial:
    return Trial(Tree.copy_of(recorded, folder), Contexts(CONTEXTS), seconds)


def _work(
    trial: Trial,
    left: queue.SimpleQueue[str],
    mutations: Mapping[str, Mutation],
    tests: Mapping[str, str],
    state: State,
) -> None:
    """Try mutations until none is left."""
    while True:
        try:
            name = left.get_nowait()
        except queue.Empty:
            return
        outcome = trial.run(mutations[name], tests.get(name, ""))
        state.add(name, outcome)
        print(f"{name:12} {outcome.outcome:8} {outcome.test or outcome.file}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
