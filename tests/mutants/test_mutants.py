"""The script that mutates the code: a mutation is found by its name, is applied to a copy, and is tried once."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from coverage import CoverageData

from mutants.contexts import Contexts
from mutants.mutations import PACKAGES, Gone, Mutation, apply, choose, dump, find, list_candidates, load
from mutants.recorder import LINES, TESTS
from mutants.state import State, describe, dump_results, load_results, lost_kills
from mutants.tree import ROOT, Tree
from mutants.trial import GONE, KILLED, SURVIVED, UNCOVERED, Outcome, Trial

CODE = '''"""A module."""

LIMIT = 3


class Counter:
    """Counts."""

    async def add(self, number: int = 1) -> int:
        """Add up to a limit: 3."""
        if not self.open and number < LIMIT:
            logger.info("adding %d", 5)
            await self.wait(
                number
            )
        return self.total + 1
'''
TEST = """
import pytest
from dragoman.engine.sums import add

@pytest.mark.parametrize("number", [1, 2])
def test_adding(number): assert add(number, 1) == number + 1
def test_nothing(): assert add(0, 0) is not None
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A package with one module."""
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "counter.py").write_text(CODE)
    return tmp_path


def named(source: Path, kind: str, code: str) -> Mutation:
    """The mutation of a kind with that code."""
    (found,) = [each for each in list_candidates(source, "engine") if (each.kind, each.code) == (kind, code)]
    return found


def mutated(source: Path, mutation: Mutation) -> str:
    """The text of the module with a mutation."""
    return apply(source, mutation, find(source, mutation))


@pytest.mark.parametrize(
    ("kind", "code", "now"),
    [
        ("comparison", "number < LIMIT", "and (number >= LIMIT):"),
        ("boundary", "number < LIMIT", "and (number <= LIMIT):"),
        ("boundary", "self.total + 1", "return (self.total + 2)"),
        ("negation", "not self.open", "if (self.open) and"),
        ("logic", "not self.open and number < LIMIT", "if (not self.open or number < LIMIT):"),
        ("return", "return self.total + 1", "        return None\n"),
        ("call", "await self.wait(number)", "            pass\n"),
        ("constant", "1", "return self.total + 2"),
    ],
)
def test_a_mutation_changes_its_code_and_nothing_else(source: Path, kind: str, code: str, now: str) -> None:
    text = mutated(source, named(source, kind, code))
    assert now in text
    assert len(set(text.splitlines()) - set(CODE.splitlines())) == 1
    ast.parse(text)


def test_a_branch_is_forced_both_ways(source: Path) -> None:
    forced = [each for each in list_candidates(source, "engine") if each.kind == "branch"]
    assert [line for each in forced for line in mutated(source, each).splitlines() if "if " in line] == [
        "        if True:",
        "        if False:",
    ]


def test_what_no_caller_notices_is_not_mutated(source: Path) -> None:
    codes = {each.code for each in list_candidates(source, "engine")}
    assert not {"3", "5"} & codes, "a constant of the module, of a docstring, or of the log"
    assert not any("logger" in code for code in codes)


def test_a_mutation_is_found_where_its_lines_and_its_format_have_changed(source: Path) -> None:
    mutation = named(source, "call", "await self.wait(number)")
    moved = CODE.replace("LIMIT = 3", "LIMIT = 4\n# é\n").replace(
        "wait(\n                number\n            )", "wait(number)"
    )
    (source / "engine" / "counter.py").write_text(moved, encoding="utf-8")
    assert find(source, mutation).start == 15
    (source / "engine" / "counter.py").rename(source / "elsewhere.py")
    assert find(source, mutation).file == "elsewhere.py"
    assert "            pass\n" in mutated(source, mutation)


def test_a_mutation_whose_code_has_changed_is_gone(source: Path) -> None:
    mutation = named(source, "negation", "not self.open")
    (source / "engine" / "counter.py").write_text(CODE.replace("not self.open", "not self.shut"))
    with pytest.raises(Gone):
        find(source, mutation)


def test_equal_code_in_one_function_makes_two_mutations(source: Path) -> None:
    (source / "engine" / "counter.py").write_text(CODE + "        return self.total + 1\n")
    first, second = [each for each in list_candidates(source, "engine") if each.kind == "return"]
    assert mutated(source, first) != mutated(source, second)
    assert mutated(source, second).endswith("return None\n")


def test_the_choice_depends_on_the_seed_alone_and_takes_each_kind(source: Path) -> None:
    candidates = list_candidates(source, "engine")
    chosen = choose(candidates, 8, "seed")
    assert chosen == choose(reversed(candidates), 8, "seed")
    assert len({each.kind for each in chosen}) == 8
    assert list(load_text(source, dump(chosen)).values()) == chosen


def load_text(folder: Path, text: str) -> dict[str, Mutation]:
    """A list as it is read from a file."""
    (folder / "list.toml").write_text(text)
    return load(folder / "list.toml")


def test_the_list_has_twelve_mutations_of_each_package() -> None:
    mutations = load(ROOT / "tests" / "mutants" / "mutations.toml")
    for package in PACKAGES:
        assert sum(name.startswith(f"{package}-") for name in mutations) == 12
        assert all(each.file.startswith(f"{name.rpartition('-')[0]}/") for name, each in mutations.items())


# -- trying ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A copy of a small repository."""
    engine = tmp_path / "tree" / "src" / "dragoman" / "engine"
    engine.mkdir(parents=True)
    for folder in (engine.parent, engine):
        (folder / "__init__.py").touch()
    (engine / "sums.py").write_text("def add(a, b):\n    if b < 0:\n        return -1\n    return a + b\n")
    (tmp_path / "tree" / "test_sums.py").write_text(TEST)
    (tmp_path / "tree" / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "-p no:langsmith_plugin"\n')
    return Tree(tmp_path / "tree")


@pytest.fixture
def contexts(tree: Tree, tmp_path: Path) -> Contexts:
    """Which tests run which lines of it."""
    recorded = [
        ("test_sums.py::test_adding[1]", 0.2),
        ("test_sums.py::test_adding[2]", 0.3),
        ("test_sums.py::test_nothing", 0.1),
    ]
    lines = CoverageData(str(tmp_path / LINES))
    for name, _ in recorded:
        lines.set_context(name)
        lines.add_lines({str(tree.source / "engine" / "sums.py"): [2, 4]})
    lines.close()
    (tmp_path / TESTS).write_text(json.dumps([[name, True, seconds] for name, seconds in recorded]))
    return Contexts(tmp_path)


def one(kind: str, code: str, becomes: str) -> Mutation:
    """A mutation of that repository."""
    return Mutation("engine/sums.py", "add", kind, code, becomes)


@pytest.mark.timeout(60)
def test_a_mutation_is_tried_with_the_tests_of_its_line_and_the_copy_is_as_before(
    tree: Tree, contexts: Contexts
) -> None:
    before = (tree.source / "engine" / "sums.py").read_text()
    trial = Trial(tree, contexts, 60)
    outcome = trial.run(one("return", "return a + b", "return None"))
    assert outcome == Outcome(KILLED, "engine/sums.py", 4, "test_sums.py::test_nothing")
    assert trial.run(one("return", "return a + b", "return None"), "test_sums.py::test_adding[2]").test.endswith("[2]")
    assert trial.run(one("comparison", "b < 0", "(b > 0)")).outcome == GONE, "no such mutation is made of it"
    assert trial.run(one("branch", "b < 0", "False")) == Outcome(SURVIVED, "engine/sums.py", 2, tests=3)
    assert trial.run(one("return", "return -1", "return None")).outcome == UNCOVERED
    assert (tree.source / "engine" / "sums.py").read_text() == before


def test_the_fastest_test_of_each_file_is_tried_first(contexts: Contexts) -> None:
    names = [test.name.partition("::")[2] for test in contexts.covering("engine/sums.py", [4])]
    assert names == ["test_nothing", "test_adding[1]", "test_adding[2]"]


@pytest.mark.timeout(60)
def test_a_test_that_fails_without_the_mutation_kills_nothing(tree: Tree, contexts: Contexts) -> None:
    path = tree.folder / "test_sums.py"
    path.write_text(path.read_text().replace("== number + 1", "== 5").replace("is not None", ">= 0"))
    outcome = Trial(tree, contexts, 60).run(one("branch", "b < 0", "False"))
    assert (outcome.outcome, outcome.tests) == (SURVIVED, 1)


# -- the state and the results -----------------------------------------------------------------------------------------


def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "state.jsonl"
    state = State(path, "digest")
    state.add("engine-01", Outcome(KILLED, "a.py", 1, "test_a"))
    with path.open("a") as file:
        file.write('["engine-02", "sur')  # killed while it wrote
    again = State(path, "digest")
    again.add("engine-03", Outcome(GONE))
    assert State(path, "digest").outcomes == {
        "engine-01": Outcome(KILLED, "a.py", 1, "test_a"),
        "engine-03": Outcome(GONE),
    }
    assert State(path, "of another tree").outcomes == {}


def test_results_are_read_as_they_were_written_and_lost_kills_are_found(tmp_path: Path, source: Path) -> None:
    before = {"a-01": Outcome(KILLED, "a.py", 1, "test_a"), "a-02": Outcome(SURVIVED, "a.py", 2, tests=4)}
    path = tmp_path / "results.toml"
    path.write_text(dump_results("4a1d7434", before))
    assert load_results(path) == before
    now = {"a-01": Outcome(SURVIVED, "a.py", 7, tests=9), "a-02": Outcome(KILLED, "a.py", 8, "test_b")}
    assert lost_kills(before, now) == ["a-01"]
    assert lost_kills(before, {**now, "a-01": Outcome(GONE)}) == []
    mutations = {name: named(source, "negation", "not self.open") for name in now}
    assert "a.py:7 Counter.add, negation, 9 tests: not self.open -> (self.open)" in describe(now, mutations)
