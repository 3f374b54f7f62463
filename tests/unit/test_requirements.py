"""The requirement manifest and the tests agree about what is proved, in both directions."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Literal, cast

import close_requirements as script
import proofs
import pytest

TESTS = Path(__file__).resolve().parents[1]
MANIFEST = TESTS / "requirements.toml"
HOW_MANY = {"S0": 68, "S1": 26, "S2": 119, "S3": 67, "S4": 62}


@cache
def manifest() -> dict[str, dict[str, object]]:
    return script.load_manifest(MANIFEST)


@cache
def claims() -> dict[str, list[str]]:
    return script.claimed_requirements(TESTS)


def listed(number: str) -> list[str]:
    """The node ids an entry lists, without their [param] suffixes; none while it is open."""
    return [str(node_id).partition("[")[0] for node_id in as_list(manifest()[number].get("tests"))]


def as_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def exists(node_id: str, root: Path) -> bool:
    file_name, _, name = node_id.partition("[")[0].partition("::")
    path = root / file_name
    return path.is_file() and name in script.marked_tests(path)


def is_open_or_names_tests(tests: object) -> bool:
    node_ids = as_list(tests)
    return tests == "open" or (bool(node_ids) and all(isinstance(node_id, str) for node_id in node_ids))


def fail_with(problems: list[str]) -> None:
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


# The manifest itself.


def test_the_manifest_holds_every_requirement_once_and_in_order() -> None:
    expected = [f"{part}-{number}" for part, last in HOW_MANY.items() for number in range(1, last + 1)]
    assert len(expected) == 342
    assert list(manifest()) == expected


def test_every_entry_has_what_it_says_and_its_tests_and_nothing_else() -> None:
    wrong = {number: sorted(entry) for number, entry in manifest().items() if set(entry) != {"says", "tests"}}
    fail_with([f"[{number}] has the keys {keys}" for number, keys in wrong.items()])


def test_every_entry_says_what_it_asks_for_in_one_line() -> None:
    says = {number: str(entry.get("says", "")) for number, entry in manifest().items()}
    fail_with([f"[{n}] says {text!r}" for n, text in says.items() if not text.strip() or "\n" in text])


def test_every_entry_is_open_or_names_its_tests() -> None:
    tests = {number: entry.get("tests") for number, entry in manifest().items()}
    wrong = {number: value for number, value in tests.items() if not is_open_or_names_tests(value)}
    fail_with([f'[{number}] tests is {value!r}, neither "open" nor node ids' for number, value in wrong.items()])


# The manifest against the tests.


def test_every_listed_test_exists() -> None:
    missing = [(n, test) for n in manifest() for test in listed(n) if not exists(test, TESTS.parent)]
    fail_with([f"[{number}] lists {test}, which is no test" for number, test in missing])


def test_tests_claim_only_numbers_of_the_manifest() -> None:
    unknown = [(n, test) for n, tests in claims().items() if n not in manifest() for test in tests]
    fail_with([f"{test} claims {number}, which is no requirement" for number, test in unknown])


def test_every_requirement_mark_is_carried_by_a_test() -> None:
    where = "put it on a test, on a Test class or into pytestmark"
    fail_with([f"{place}: this requirement mark proves nothing; {where}" for place in script.stray_marks(TESTS)])


def test_every_listed_test_claims_the_requirement() -> None:
    missing = [(n, test) for n in manifest() for test in listed(n) if test not in claims().get(n, [])]
    fail_with([f'[{n}] lists {test}, which lacks @pytest.mark.requirement("{n}")' for n, test in missing])


def test_every_claiming_test_is_listed_for_the_requirement() -> None:
    behind = [n for n, tests in claims().items() if n in manifest() and not set(tests) <= set(listed(n))]
    lines = [f"[{n}] needs the line\n{script.tests_line(claims()[n])}" for n in behind]
    fail_with([*lines, "or run: python tests/close_requirements.py"] if lines else [])


def test_every_requirement_has_a_test_that_the_suite_runs() -> None:
    unproven = [n for n in manifest() if all(script.is_left_out(test, TESTS.parent) for test in listed(n))]
    fail_with([f"[{n}] is proven only by tests that `make test` leaves out: {listed(n)}" for n in unproven])


# How claims are read.


def claims_of(source: str, tmp_path: Path, name: str = "test_sample.py") -> dict[str, list[str]]:
    path = tmp_path / "tests" / name
    path.parent.mkdir()
    path.write_text(source, encoding="utf-8")
    return script.claimed_requirements(path.parent)


def test_a_decorated_test_claims_each_of_its_numbers(tmp_path: Path) -> None:
    source = '@pytest.mark.requirement("S2-13", "S2-14")\nasync def test_a() -> None: ...\ndef test_b() -> None: ...\n'
    node_ids = ["tests/test_sample.py::test_a"]
    assert claims_of(source, tmp_path) == {"S2-13": node_ids, "S2-14": node_ids}


def test_a_mark_on_a_class_is_claimed_by_all_of_its_tests(tmp_path: Path) -> None:
    source = (
        '@pytest.mark.requirement("S0-1")\nclass TestIt:\n    def test_b(self) -> None: ...\n'
        '    @pytest.mark.requirement("S0-2")\n    def test_a(self) -> None: ...\n    def helper(self) -> None: ...\n'
    )
    test_a, test_b = "tests/test_sample.py::TestIt::test_a", "tests/test_sample.py::TestIt::test_b"
    assert claims_of(source, tmp_path) == {"S0-1": [test_a, test_b], "S0-2": [test_a]}


@pytest.mark.parametrize(
    "pytestmark",
    ['pytest.mark.requirement("S1-1")', '[pytest.mark.slow, pytest.mark.requirement("S1-1")]'],
)
def test_a_module_level_mark_is_claimed_by_all_tests_of_the_file(pytestmark: str, tmp_path: Path) -> None:
    source = f"pytestmark = {pytestmark}\ndef test_a() -> None: ...\nclass TestIt:\n    def test_b(self) -> None: ...\n"
    node_ids = ["tests/test_sample.py::TestIt::test_b", "tests/test_sample.py::test_a"]
    assert claims_of(source, tmp_path) == {"S1-1": node_ids}


@pytest.mark.parametrize("arguments", ["", "NUMBER", "*NUMBERS", '"S0-1", number="S0-2"', "13"])
def test_a_mark_without_literal_numbers_is_refused(arguments: str, tmp_path: Path) -> None:
    source = f"@pytest.mark.requirement({arguments})\ndef test_a() -> None: ...\n"
    with pytest.raises(ValueError, match=r"test_sample\.py:1: a requirement mark takes one or more numbers"):
        claims_of(source, tmp_path)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("test_sample.py", '@pytest.mark.requirement("S0-1")\ndef helper() -> None: ...\n'),
        ("test_sample.py", '@pytest.mark.requirement("S0-1")\nclass Base:\n    def test_a(self) -> None: ...\n'),
        ("test_sample.py", "proves = pytest.mark.requirement\n"),
        ("helpers.py", '@pytest.mark.requirement("S0-1")\ndef test_a() -> None: ...\n'),
    ],
)
def test_a_mark_on_something_pytest_does_not_collect_is_a_stray(name: str, source: str, tmp_path: Path) -> None:
    assert claims_of(source, tmp_path, name) == {}
    assert script.stray_marks(tmp_path / "tests") == [f"tests/{name}:1"]


@pytest.mark.parametrize(
    ("node_id", "found"),
    [
        ("tests/test_sample.py::test_a", True),
        ("tests/test_sample.py::test_a[x::y]", True),
        ("tests/test_sample.py::TestIt::test_b", True),
        ("tests/test_sample.py::test_b", False),
        ("tests/test_sample.py", False),
        ("tests/test_other.py::test_a", False),
    ],
)
def test_a_node_id_exists_when_its_file_defines_the_test(node_id: str, found: bool, tmp_path: Path) -> None:
    claims_of("def test_a() -> None: ...\nclass TestIt:\n    def test_b(self) -> None: ...\n", tmp_path)
    assert exists(node_id, tmp_path) is found


@pytest.mark.parametrize(
    ("source", "left_out"),
    [
        ("def test_a() -> None: ...\n", False),
        ("@pytest.mark.fault\ndef test_a() -> None: ...\n", False),
        ("@pytest.mark.interop\ndef test_a() -> None: ...\n", True),
        ("@pytest.mark.skip('broken')\ndef test_a() -> None: ...\n", True),
        ("pytestmark = [pytest.mark.fault, pytest.mark.soak]\ndef test_a() -> None: ...\n", True),
        ("pytestmark = pytest.mark.interop\ndef test_a() -> None: ...\n", True),
    ],
)
def test_a_test_of_another_command_proves_nothing_to_the_suite(source: str, left_out: bool, tmp_path: Path) -> None:
    claims_of(source, tmp_path)
    assert script.is_left_out("tests/test_sample.py::test_a[x]", tmp_path) is left_out


def test_a_mark_on_a_class_leaves_all_of_its_tests_out(tmp_path: Path) -> None:
    source = "@pytest.mark.interop\nclass TestIt:\n    def test_b(self) -> None: ...\ndef test_a() -> None: ...\n"
    claims_of(source, tmp_path)
    assert script.is_left_out("tests/test_sample.py::TestIt::test_b", tmp_path)
    assert not script.is_left_out("tests/test_sample.py::test_a", tmp_path)


# How the manifest is rewritten.

SAMPLE = """\
# A comment.

[S0-1]
says = "One [thing]."
tests = "open"  # soon

[S0-2]
# Another comment.
says = 'Say "two".'
tests = [
    "tests/test_b.py::test_old[x]",
]

[S0-3]
says = "Three."
tests = "open"
"""


def test_closing_changes_only_the_tests_of_each_entry() -> None:
    one, three = ["tests/test_a.py::test_a", "tests/test_b.py::test_b"], ["tests/test_c.py::test_c"]
    closed = script.close(SAMPLE, {"S0-1": one, "S0-3": three})
    before, after = SAMPLE.splitlines(), closed.splitlines()
    assert {number: entry["tests"] for number, entry in tomllib.loads(closed).items()} == {
        "S0-1": one,
        "S0-2": "open",
        "S0-3": three,
    }
    assert after[:4] == before[:4]
    assert after[4] == 'tests = ["tests/test_a.py::test_a", "tests/test_b.py::test_b"]  # soon'
    assert after[5:9] == before[5:9]
    assert after[9] == 'tests = "open"'
    assert after[10:13] == before[12:15]


def test_closing_twice_changes_nothing_more() -> None:
    claimed = {"S0-2": ["tests/test_a.py::test_a"]}
    closed = script.close(SAMPLE, claimed)
    assert script.close(closed, claimed) == closed


def test_closing_refuses_a_number_the_manifest_lacks() -> None:
    with pytest.raises(ValueError, match="not in the manifest: S9-9"):
        script.close(SAMPLE, {"S9-9": ["tests/test_a.py::test_a"]})


# What a run has shown.


def report_of(
    outcome: Literal["passed", "skipped"], when: Literal["setup", "call"], *numbers: str
) -> pytest.TestReport:
    return pytest.TestReport(
        "tests/test_a.py::test_a",
        ("", None, ""),
        {},
        outcome,
        None,
        when,
        user_properties=[("requirement", list(numbers))],
    )


def test_a_requirement_whose_tests_were_all_skipped_is_named_after_a_whole_run() -> None:
    watch = proofs.Proofs(["S0-1", "S0-2", "S0-3"])
    for report in (
        report_of("passed", "setup", "S0-1", "S0-2"),
        report_of("passed", "call", "S0-1", "S0-2"),
        report_of("skipped", "setup", "S0-2", "S0-3"),
        report_of("skipped", "call", "S0-3"),
    ):
        watch.pytest_runtest_logreport(report)
    assert watch.unproven == ["S0-3"]
