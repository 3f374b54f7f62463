"""No schema and no arguments keep everybody waiting: what takes too long is left to the server."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from dragoman.schema.arguments import Problem, Schema
from dragoman.schema.validator import FlatSchema, has_unevaluated_patterns

# A tenth of it is aimed at; the rest is for busy machines. Before it was counted, each of these took many seconds.
SOON = 1.0

PATHS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}


def _binary(*, kind_first: bool) -> dict[str, Any]:
    """An expression that is a leaf, or a pair of expressions of one of two kinds."""
    kinds: dict[str, Any] = {}
    for name in ("and", "or"):
        sides = {"left": {"$ref": "#/$defs/any"}, "right": {"$ref": "#/$defs/any"}}
        kind = {"op": {"const": name}}
        kinds[name] = {"properties": {**kind, **sides} if kind_first else {**sides, **kind}, "required": ["op", "left"]}
    leaf = {"properties": {"op": {"const": "leaf"}}, "required": ["op"]}
    branches = [{"$ref": f"#/$defs/{name}"} for name in ("leaf", "and", "or")]
    return {
        "properties": {"where": {"$ref": "#/$defs/any"}},
        "$defs": {"any": {"anyOf": branches}, "leaf": leaf, **kinds},
    }


def _nested(depth: int, leaf: str = "leaf") -> dict[str, Any]:
    found: dict[str, Any] = {"op": leaf}
    for _ in range(depth):
        found = {"op": "or", "left": found, "right": {"op": "leaf"}}
    return {"where": found}


def _soon(work: Callable[[], Any]) -> Any:
    before = time.process_time()
    found = work()
    assert time.process_time() - before < SOON
    return found


def test_alternatives_within_alternatives_are_judged_by_their_kind_first() -> None:
    schema = Schema(_binary(kind_first=True))
    assert _soon(lambda: schema.problems(_nested(25))) == ()
    (problem,) = schema.problems(_nested(2, "else"))
    assert problem == Problem("where.left.left.op", False, 'must be one of "leaf", "and", "or", not "else"')


def test_judging_that_doubles_with_each_level_is_given_up_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    schema = Schema(_binary(kind_first=False))
    with caplog.at_level(logging.WARNING):
        assert _soon(lambda: schema.problems(_nested(40, "else"))) == ()
        assert _soon(lambda: schema.problems(_nested(40))) == ()
    assert [record.message for record in caplog.records] == [
        "a tool's schema cannot be used, its server will judge the arguments: it would take too long"
    ]
    assert schema.problems({"where": {"op": "else"}})  # what ends soon is judged as ever


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ({"items": {"type": "integer"}}, [1] * 300_000),
        ({"uniqueItems": True}, [{"a": number} for number in range(60_000)]),
        ({"uniqueItems": True}, [(2**61 - 1) * (number + 1) for number in range(30_000)]),
        ({"uniqueItems": True}, [[0] * 500 + [number] for number in range(1_000)]),
        ({"uniqueItems": True}, [[number / 2] for number in range(60_000)]),
        ({"items": {"enum": list(range(3_000))}}, [99_999] * 60_000),
        ({"items": {"const": {"a": [1] * 1000}}}, [{"a": [1] * 1000}] * 300),
        ({"contains": {"type": "string"}}, [1] * 300_000),
        ({"unevaluatedItems": False, "prefixItems": [True]}, [1] * 300_000),
        ({"unevaluatedProperties": False}, {f"n{number}": 1 for number in range(60_000)}),
        ({"unevaluatedProperties": False, "patternProperties": {"a+b$": True}}, {"a" * 500_000: 1}),
        ({"patternProperties": {"[a-z]+_id$": {"type": "string"}}}, {"a" * 500_000: 1}),
        ({"patternProperties": {"[a-z]+_id$": {"type": "string"}}}, {"a" * 900 + str(n): 1 for n in range(800)}),
        ({"items": {"pattern": "[a-z]+_id$"}}, ["a" * 900 + "_id"] * 800),
        ({"pattern": "[a-z]+_id$"}, "a" * 500_000),
        ({"oneOf": [{"additionalProperties": {"type": "integer"}}] * 50}, {f"n{n}": 1 for n in range(60_000)}),
    ],
)
def test_what_would_take_long_is_left_to_the_server(place: Any, value: Any) -> None:
    schema = Schema({"properties": {"x": place}})
    schema.problems({})
    assert _soon(lambda: schema.problems({"x": value})) == ()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "null"}] * 100}, [0] * 300_000),
        ({"maxItems": 1}, [0] * 300_000),
        ({"not": {"type": "array"}}, [0] * 300_000),
        ({"anyOf": [False] * 100}, [0] * 300_000),
        ({"maxLength": 1}, "x" * 500_000),
        ({"items": False}, [0] * 300_000),
    ],
    ids=["anyOf", "maxItems", "not", "false", "maxLength", "items"],
)
def test_a_large_value_is_not_written_out_to_say_that_it_is_wrong(place: Any, value: Any) -> None:
    schema = Schema({"properties": {"x": place}})
    schema.problems({})
    (problem,) = _soon(lambda: schema.problems({"x": value}))
    assert problem.path == "x"
    assert len(problem.text) < 200


def test_of_very_many_problems_the_first_are_reported_and_the_rest_counted() -> None:
    schema = Schema({"properties": {"ids": {"items": {"type": "integer"}}, "must": {}}, "required": ["must"]})
    some = schema.problems({"ids": ["x"] * 50})
    assert some[0] == Problem("must", True, "is missing")
    assert [problem.path for problem in some[1:20]] == [f"ids[{index}]" for index in range(19)]
    assert some[20:] == (Problem("", False, "has 31 more problems"),)
    assert schema.question("t", some).splitlines()[-1] == "`t` has 31 more problems"
    assert schema.requested_schema(some)["properties"].keys() == {"ids", "must"}

    many = _soon(lambda: schema.problems({"ids": ["x"] * 300_000}))
    assert many[-1] == Problem("", False, "has many more problems")
    assert len(schema.question("t", many)) < 2_000


def test_one_more_problem_is_one() -> None:
    schema = Schema({"properties": {"ids": {"items": {"type": "integer"}}}})
    assert len(schema.problems({"ids": ["x"] * 20})) == 20
    assert schema.problems({"ids": ["x"] * 21})[-1].text == "has 1 more problem"


@pytest.mark.parametrize(("inside", "answer"), [((), "p"), (("filter",), "filter.path=p")], ids=str)
def test_very_many_unknown_names_are_all_dropped_by_one_answer(inside: tuple[str, ...], answer: str) -> None:
    wrong: dict[str, Any] = {f"path{number}": 1 for number in range(50_000)}
    right: dict[str, Any] = {"path": "p"}
    tree: dict[str, Any] = PATHS
    for name in inside:
        tree, wrong, right = {"properties": {name: tree}}, {name: wrong}, {name: right}
    schema = Schema(tree)
    problems = _soon(lambda: schema.problems(wrong))
    assert len(problems) == 21
    assert len(_soon(lambda: schema.question("t", problems))) < 3_000
    assert _soon(lambda: schema.merge_answer(wrong, problems, answer, None)) == right
    # Those who send them again are asked again, soon.
    again = _soon(lambda: schema.merge_answer(wrong, problems, "", wrong))
    assert len(_soon(lambda: schema.problems(again))) == 21


def test_names_that_match_a_pattern_stay_when_the_unknown_ones_go() -> None:
    schema = Schema({"patternProperties": {"^x-": {}}, "properties": {"a": {}}, "additionalProperties": False})
    arguments = {"a": 1, "x-y": 2, **{f"z{number}": 3 for number in range(30)}}
    assert schema.merge_answer(arguments, schema.problems(arguments), "ok", None) == {"a": 1, "x-y": 2}


@pytest.mark.parametrize(
    "name", ["path." * 100_000, "[0]" * 100_000, "[" * 300_000, f"[{'9' * 9_000}]", "path" * 100_000, "a.b", "x[0]"]
)
def test_a_name_of_any_length_and_spelling_is_asked_about_and_dropped(name: str) -> None:
    schema = Schema(PATHS)
    arguments = {"path": "p", name: 1}
    (problem,) = _soon(lambda: schema.problems(arguments))
    assert (problem.path, problem.unknown) == (name, True)
    assert len(schema.question("t", [problem])) < 500
    assert _soon(lambda: schema.merge_answer(arguments, [problem], "path=q", None)) == {"path": "q"}


def test_problems_below_a_very_long_name_do_not_each_repeat_it() -> None:
    schema = Schema({"additionalProperties": {"additionalProperties": False}})
    problems = schema.problems({"p" * 300_000: {str(number): 1 for number in range(50)}})
    assert sum(len(problem.path) for problem in problems) < 400_000
    assert problems[-1].text == "has 49 more problems"


def test_the_empty_name_is_a_name() -> None:
    schema = Schema({"properties": {"path": {}, "in": PATHS}, "additionalProperties": False})
    arguments = {"": 1, "in": {"": 1, "path": "p"}, "path": "p"}
    problems = schema.problems(arguments)
    assert {problem.path for problem in problems} == {"", "in."}
    assert '`t`: `""` is not known: it takes path, in' in schema.question("t", problems)
    assert schema.merge_answer(arguments, problems, "", {"path": "q"}) == {"in": {"path": "p"}, "path": "q"}


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
def test_the_alternative_false_is_never_meant(word: str) -> None:
    schema = Schema({"properties": {"x": {word: [False, {"type": "integer", "minimum": 3}]}}})
    assert schema.problems({"x": 1}) == (Problem("x", False, "must be at least 3"),)
    assert schema.problems({"x": 3}) == ()
    never = Schema({"properties": {"x": {word: [False, False]}}})
    assert never.problems({"x": 1}) == (Problem("x", False, "fits none of its alternatives: 1"),)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ({"items": {"type": "integer"}}, [1.0] * 200_000),
        ({"items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}, [1.0] * 200_000),
        ({"patternProperties": {"[a-z]+_id$": {"type": "integer"}}}, {"a" * 900 + str(n): 1.0 for n in range(800)}),
    ],
    ids=str,
)
def test_what_would_take_long_to_fit_is_handed_back_as_it_is(place: Any, value: Any) -> None:
    schema = Schema({"properties": {"x": place}})
    arguments = {"x": value}
    assert _soon(lambda: schema.coerce_integers(arguments)) is arguments


def test_a_large_value_without_floats_is_handed_back_soon() -> None:
    arguments: dict[str, Any] = {"x": [[]] * 300_000, "y": [{"a": {}} for _ in range(100_000)]}
    assert _soon(lambda: Schema({"type": "object"}).coerce_integers(arguments)) is arguments


@pytest.mark.parametrize("text", ["," * 500_000, "name1=x," * 60_000, "name\n" * 100_000, f",{' ' * 500_000}"])
def test_a_long_text_is_read_soon_however_many_names_there_are(text: str) -> None:
    names = {f"name{number}": {"type": "string"} for number in range(300)}
    schema = Schema({"properties": names, "required": ["name1", "name2"]})
    problems = schema.problems({})
    assert isinstance(_soon(lambda: schema.merge_answer({}, problems, text, None)), dict)


def test_a_long_value_of_a_pair_is_read() -> None:
    schema = Schema({"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a", "b"]})
    words = "some words, and some more; " * 10_000
    found = schema.merge_answer({}, schema.problems({}), f"b=3\na={words}", None)
    assert found == {"a": words.rstrip().rstrip(",;"), "b": 3}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {
            "$defs": {"x": {"allOf": [{"$ref": "#/$defs/y"}]}, "y": {"oneOf": [{"$ref": "#/$defs/x"}]}},
            "$ref": "#/$defs/x",
        },
        {"not": {"$ref": "#"}},
        {"unevaluatedProperties": False, "$ref": "#"},
        {"$dynamicAnchor": "me", "$dynamicRef": "#me"},
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "#"},
        {"anyOf": [{"anyOf": [{"$ref": "#"}] * 30}] * 30},
    ],
    ids=lambda schema: str(schema)[:60],
)
def test_a_schema_that_only_refers_to_itself_is_finished_quickly(
    schema: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    made = Schema(schema)
    arguments = {"a": 1.0}
    problems = _soon(lambda: made.problems(arguments))
    for work in (
        lambda: made.coerce_integers(arguments),
        lambda: made.question("t", problems),
        lambda: made.requested_schema(problems),
        lambda: made.merge_answer(arguments, problems, "a=1", None),
        made.example,
        made.fields,
        lambda: made.text_property({}),
        lambda: made.takes_text,
    ):
        _soon(work)
    assert "panicked" not in capfd.readouterr().err


def test_what_is_asked_for_again_does_not_grow_beyond_measure() -> None:
    properties = {f"p{n}": {"anyOf": [{"$ref": f"#/properties/p{n + 1}"}] * 2} for n in range(40)}
    schema = Schema({"properties": properties, "required": ["p0"]})
    found = _soon(lambda: schema.requested_schema([Problem("p0", True, "is missing")]))
    assert found["required"] == ["p0"]


def test_a_very_large_schema_is_left_to_the_server(caplog: pytest.LogCaptureFixture) -> None:
    schema = Schema({"properties": {f"p{n}": {"type": "string", "minLength": 1} for n in range(50_000)}})
    with caplog.at_level(logging.WARNING):
        assert _soon(lambda: schema.problems({"p1": 3})) == ()
    assert "too large" in caplog.text


def test_a_schema_inside_that_names_a_draft_is_counted_too() -> None:
    inner = {"$schema": "http://json-schema.org/draft-07/schema#", "items": {"pattern": "(a+)+$"}}
    schema = Schema({"properties": {"x": inner}})
    schema.problems({})
    (problem,) = _soon(lambda: schema.problems({"x": ["a" * 40 + "!"]}))
    assert problem.path == "x[0]"


class _Panic(BaseException):
    """What a library in another language raises: not an Exception."""


class _Breaking(dict[str, Any]):
    """A value that breaks whoever looks into it."""

    error: BaseException = _Panic()

    def __contains__(self, key: object) -> bool:
        raise self.error


def test_a_panic_within_a_validator_leaves_the_arguments_to_the_server() -> None:
    schema = Schema({"type": "object", "properties": {"a": {"type": "array"}}, "required": ["a"]})
    assert schema.problems(_Breaking()) == ()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit()], ids=repr)
def test_the_end_of_the_process_is_not_kept_from_it(error: BaseException) -> None:
    value = _Breaking()
    value.error = error
    with pytest.raises(type(error)):
        Schema({"type": "object", "properties": {"a": {"type": "array"}}, "required": ["a"]}).problems(value)


def test_a_flat_schema_is_judged_without_a_validator(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []
    takes = FlatSchema.is_surely_valid

    def counted(flat: FlatSchema, value: object) -> bool:
        taken.append(takes(flat, value))
        return taken[-1]

    monkeypatch.setattr(FlatSchema, "is_surely_valid", counted)
    schema = Schema(PATHS)
    assert schema.problems({"path": "p", "limit": 3}) == ()
    assert taken == [True]


values = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, 1, 1.0, 1.5, -1]) | st.sampled_from(["", "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "ab"]), inner, max_size=3),
    max_leaves=8,
)


def _one_word(word: str, inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({word: inner})


def _schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    two, names = st.lists(inner, min_size=1, max_size=2), st.sampled_from(["a", "b"])
    words = (
        *(_one_word(word, two) for word in ("anyOf", "oneOf", "allOf")),
        *(_one_word(word, inner) for word in ("not", "items", "contains", "propertyNames", "additionalProperties")),
        *(_one_word(word, inner) for word in ("if", "then", "unevaluatedProperties")),
        _one_word("properties", st.dictionaries(names, inner, max_size=2)),
        _one_word("patternProperties", st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=2)),
    )
    return st.lists(st.one_of(*words), min_size=1, max_size=3).map(
        lambda some: {k: v for one in some for k, v in one.items()}
    )


plain = st.sampled_from(
    [
        True,
        False,
        {"type": "integer"},
        {"type": ["string", "object"]},
        {"minItems": 1, "maxItems": 2},
        {"minLength": 1, "maxLength": 1},
        {"minProperties": 1, "maxProperties": 1},
        {"uniqueItems": True},
        {"required": ["a", "b"]},
        {"pattern": "^a"},
        {"enum": [1, "a", [True], {"a": 1}]},
        {"const": [1]},
    ]
)


@given(st.recursive(plain, _schemas, max_leaves=6), values, st.booleans())
def test_counting_changes_no_judgement(place: Any, value: Any, old: bool) -> None:
    root: dict[str, Any] = {"properties": {"a": place}}
    assume(not has_unevaluated_patterns(root))  # those are left to the server, as another test has it
    if old:
        root["$schema"] = "http://json-schema.org/draft-07/schema#"
    library: Any = Draft7Validator if old else Draft202012Validator
    right = library(root).is_valid({"a": value})
    assert (Schema(root).problems({"a": value}) == ()) is right
