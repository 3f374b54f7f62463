"""What is wrong with arguments, and how it is asked for."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dragoman.schema.arguments import Problem, Schema

ADD = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "description": "first number"},
        "b": {"type": "integer"},
    },
    "required": ["a", "b"],
}
TREE = {
    "type": "object",
    "$defs": {"Node": {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/Node"}}}},
    "properties": {"root": {"$ref": "#/$defs/Node"}},
}


def _one(schema: Any, value: Any) -> str:
    """The one thing that is wrong with a value, in words."""
    (problem,) = Schema({"properties": {"x": schema}}).problems({"x": value})
    assert (problem.path, problem.missing) == ("x", False)
    return problem.text


def test_right_arguments_have_no_problems() -> None:
    assert Schema(ADD).problems({"a": 1, "b": 2}) == ()


def test_what_is_missing_comes_first_and_the_rest_in_the_order_of_the_schema() -> None:
    names = ["d", "c", "b", "a"]
    schema = Schema({"properties": {name: {"type": "integer"} for name in names}, "required": ["a", "c"]})
    assert schema.problems({"b": "x", "d": "y"}) == (
        Problem("c", True, "is missing"),
        Problem("a", True, "is missing"),
        Problem("d", False, 'must be an integer, not "y"'),
        Problem("b", False, 'must be an integer, not "x"'),
    )


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        ({"type": "integer"}, "x", 'must be an integer, not "x"'),
        ({"type": "integer"}, 1.5, "must be an integer, not 1.5"),
        ({"type": "integer"}, True, "must be an integer, not true"),
        ({"type": "string"}, None, "must be a string, not null"),
        ({"type": ["string", "null"]}, 3, "must be a string or null, not 3"),
        ({"type": "boolean"}, "x", 'must be true or false, not "x"'),
        ({"enum": ["a", "b"]}, "c", 'must be one of "a", "b", not "c"'),
        ({"type": "string", "enum": ["a", "b"]}, 3, 'must be one of "a", "b", not 3'),
        ({"const": 1}, 2, "must be 1, not 2"),
        ({"minimum": 1}, 0, "must be at least 1"),
        ({"maximum": 1}, 2, "must be at most 1"),
        ({"exclusiveMinimum": 1}, 1, "must be more than 1"),
        ({"exclusiveMaximum": 1}, 1, "must be less than 1"),
        ({"multipleOf": 5}, 3, "must be a multiple of 5"),
        ({"minLength": 1}, "", "must not be empty"),
        ({"minLength": 3}, "ab", "must have at least 3 characters"),
        ({"maxLength": 1}, "ab", "must have at most 1 character"),
        ({"pattern": "^a$"}, "b", 'must match the pattern "^a$"'),
        ({"minItems": 1}, [], "must not be empty"),
        ({"minItems": 2}, [1], "must have at least 2 items"),
        ({"maxItems": 1}, [1, 2], "must have at most 1 item"),
        ({"prefixItems": [True], "items": False}, [1, 2], "has too many items"),
        ({"uniqueItems": True}, [1, 1], "must not have the same item twice"),
        ({"contains": {"const": 1}}, [2], "lacks an item of the kind it must have"),
        ({"contains": {"const": 1}, "maxContains": 1}, [1, 1], "must have at most 1 item of a certain kind"),
        ({"minProperties": 2}, {"a": 1}, "must have at least 2 of its properties"),
        ({"maxProperties": 0}, {"a": 1}, "must have at most 0 of its properties"),
        ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, 'has a name that is not allowed: "ab"'),
        ({"not": {"type": "string"}}, "x", "has a value that is not allowed"),
        (False, "x", "must not be given"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "x", 'must be an integer or null, not "x"'),
        ({"anyOf": [{"enum": ["p", "q"]}, {"type": "null"}]}, 3, 'must be one of "p", "q", not 3'),
        (
            {"anyOf": [{"type": "string", "enum": ["p", "q"]}, {"type": "null"}]},
            3,
            'must be one of "p", "q" or null, not 3',
        ),
        ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}, 0, "must be at least 1"),
        (
            {"oneOf": [{"type": "integer"}, {"type": "number"}]},
            1,
            "fits more than one of its alternatives, and has to fit exactly one",
        ),
        ({"anyOf": [{"required": ["p"]}, {"required": ["q", "r"]}]}, {}, "needs `p`, or `q` and `r`"),
    ],
    ids=str,
)
def test_each_problem_is_described_plainly(schema: Any, value: Any, text: str) -> None:
    assert _one(schema, value) == text


def test_places_inside_a_value_are_named() -> None:
    schema = Schema(
        {
            "properties": {
                "filter": {"properties": {"from": {"type": "string"}}, "required": ["to"]},
                "items": {"items": {"properties": {"id": {"type": "integer"}}}},
            }
        }
    )
    found = schema.problems({"filter": {"from": 1}, "items": [{"id": 1}, {"id": "x"}]})
    assert {(problem.path, problem.missing) for problem in found} == {
        ("filter.from", False),
        ("filter.to", True),
        ("items[1].id", False),
    }


def test_of_several_kinds_of_object_the_one_that_was_meant_is_complained_about() -> None:
    kinds = [
        {"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind", "x"]},
        {"properties": {"kind": {"const": "b"}, "y": {"type": "integer"}}, "required": ["kind", "y"]},
    ]
    schema = Schema({"properties": {"shape": {"oneOf": kinds}}})
    assert schema.problems({"shape": {"kind": "b"}}) == (Problem("shape.y", True, "is missing"),)
    assert schema.problems({"shape": {"kind": "c", "x": 1}}) == (
        Problem("shape.kind", False, 'must be one of "a", "b", not "c"'),
    )


def test_when_no_alternative_is_nearer_the_deepest_problem_is_reported() -> None:
    rows = [{"properties": {"x": {"items": {"maximum": 1}}}}, {"properties": {"x": {"minItems": 3}}}]
    (problem,) = Schema({"properties": {"o": {"anyOf": rows}}}).problems({"o": {"x": [5]}})
    assert problem == Problem("o.x[0]", False, "must be at most 1")


def test_the_problem_of_an_unknown_name_lists_the_known_ones_and_the_nearest() -> None:
    schema = Schema({"properties": {"city": {}, "days": {}}, "additionalProperties": False})
    assert schema.problems({"citty": 1, "zzz": 2}) == (
        Problem("citty", False, "is not known: it takes city, days; did you mean `city`?"),
        Problem("zzz", False, "is not known: it takes city, days"),
    )


def test_a_tool_without_arguments_says_so() -> None:
    (problem,) = Schema({"type": "object", "additionalProperties": False}).problems({"a": 1})
    assert problem == Problem("a", False, "is not known: it takes nothing")


def test_names_that_match_a_pattern_are_known() -> None:
    schema = Schema({"patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": False})
    assert [problem.path for problem in schema.problems({"x-a": 1, "y": 2, "x-b": "no"})] == ["x-b", "y"]


def test_what_another_argument_needs_is_missing() -> None:
    schema = Schema({"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}})
    assert schema.problems({"a": 1}) == (Problem("b", True, "is missing: `a` needs it"),)


def test_a_problem_of_the_whole_has_no_path() -> None:
    schema = Schema({"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})
    problems = schema.problems({})
    assert problems == (Problem("", False, "needs `a`, or `b`"),)
    assert schema.question("t", problems) == "`t` needs `a`, or `b`"
    assert list(schema.requested_schema(problems)["properties"]) == ["a", "b"]


def test_long_values_and_long_lists_are_cut() -> None:
    schema = Schema({"properties": {"x": {"type": "integer"}, "y": {"enum": [f"value {n}" for n in range(500)]}}})
    for problem in schema.problems({"x": "long " * 1000, "y": {"deep": ["long"] * 1000}}):
        assert len(problem.text) < 300
        assert "…" in problem.text


def test_the_draft_the_schema_names_is_used() -> None:
    rows = {"properties": {"x": {"items": [{"type": "integer"}]}}}
    old = Schema({"$schema": "http://json-schema.org/draft-07/schema#", **rows})
    assert [problem.path for problem in old.problems({"x": ["a", "b"]})] == ["x[0]"]


def test_an_unknown_draft_is_read_as_the_newest() -> None:
    schema = Schema({"$schema": "http://127.0.0.1:9/draft", **ADD})
    assert [problem.path for problem in schema.problems({"a": 1})] == ["b"]


def test_a_recursive_schema_is_followed_as_deep_as_the_value_goes() -> None:
    (problem,) = Schema(TREE).problems({"root": {"next": {"next": {"n": "x"}}}})
    assert problem.path == "root.next.next.n"


@pytest.mark.parametrize("schema", [True, {}, {"type": "object"}])
def test_a_schema_that_says_nothing_takes_everything(schema: Any) -> None:
    assert Schema(schema).problems({"a": [1.5, None]}) == ()
    assert Schema(schema).coerce_integers({"a": [1.0]}) == {"a": [1.0]}
    assert Schema(schema).example() == {}
    assert Schema(schema).takes_text
    assert Schema(schema).text_property({}) is None


def test_the_schema_false_takes_nothing() -> None:
    schema: Any = False
    assert [problem.path for problem in Schema(schema).problems({})] == [""]


# -- asking ------------------------------------------------------------------------------------------------------------


def test_the_question_has_a_line_for_each_problem() -> None:
    schema = Schema({**ADD, "properties": {**ADD["properties"], "unit": {"enum": ["km", "mi"]}, "to": {}}})
    assert schema.question("add_numbers", schema.problems({"b": "x", "unit": "ft"})) == (
        "`add_numbers` needs `a` (integer): first number\n"
        '`add_numbers`: `b` must be an integer, not "x"\n'
        '`add_numbers`: `unit` must be one of "km", "mi", not "ft"'
    )
    assert schema.question("add_numbers", ()) == ""


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "number"}, " (number)"),
        ({"type": ["null", "string"]}, " (string or null)"),
        ({"anyOf": [{"type": "array"}, {"type": "null"}]}, " (array or null)"),
        ({"$ref": "#/$defs/Unit"}, ' (one of "km", "mi"): of length'),
        ({"const": 7}, " (7)"),
        ({}, ""),
        (True, ""),
        ({"type": "object", "description": "two\n  lines"}, " (object): two lines"),
    ],
    ids=str,
)
def test_types_are_described_in_words(schema: Any, words: str) -> None:
    unit = {"enum": ["km", "mi"], "description": "of length"}
    made = Schema({"$defs": {"Unit": unit}, "properties": {"x": schema}, "required": ["x"]})
    assert made.question("t", made.problems({})) == f"`t` needs `x`{words}"


def test_a_long_description_is_cut() -> None:
    schema = Schema({"properties": {"x": {"description": "long " * 500}}, "required": ["x"]})
    assert len(schema.question("t", schema.problems({}))) < 230


def test_a_missing_place_inside_a_value_is_described_too() -> None:
    inner = {"properties": {"a.b": {"type": "integer", "description": "dots"}}, "required": ["a.b"]}
    schema = Schema({"properties": {"rows": {"items": inner}}})
    assert schema.question("t", schema.problems({"rows": [{}]})) == "`t` needs `rows[0].a.b` (integer): dots"


def test_only_what_is_to_be_given_again_is_requested() -> None:
    schema = Schema(ADD)
    assert schema.requested_schema(schema.problems({"a": 1})) == {
        "type": "object",
        "properties": {"b": {"type": "integer"}},
        "required": ["b"],
    }


def test_definitions_are_requested_along_with_what_needs_them() -> None:
    definitions = {
        "A": {"type": "array", "items": {"$ref": "#/$defs/B"}},
        "B": {"type": "integer"},
        "C": {"type": "string"},
    }
    schema = Schema({"$defs": definitions, "properties": {"a": {"$ref": "#/$defs/A"}, "c": {"$ref": "#/$defs/C"}}})
    requested = schema.requested_schema(schema.problems({"a": ["x"], "c": "right"}))
    assert requested == {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "$defs": {"A": definitions["A"], "B": definitions["B"]},
    }
    assert [problem.path for problem in Schema(requested).problems({"a": ["x"]})] == ["a[0]"]


def test_a_reference_to_what_is_left_out_is_replaced_by_what_it_says() -> None:
    schema = Schema(
        {"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}, "c": {"items": {"$ref": "#"}}}}
    )
    requested = schema.requested_schema([Problem("b", True, "is missing"), Problem("c", True, "is missing")])
    assert requested["properties"]["b"] == {"type": "integer"}
    assert list(requested["properties"]["c"]["items"]["properties"]) == ["a", "b", "c"]
    assert Schema(requested).problems({"b": 1, "c": [{"c": [{"a": 1}]}]}) == ()


def test_an_unknown_name_is_not_requested() -> None:
    schema = Schema({"properties": {"a": {}}, "additionalProperties": False})
    assert schema.requested_schema(schema.problems({"b": 1})) == {"type": "object", "properties": {}}


# -- plain text --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "required", "given", "slot"),
    [
        ({"q": {"type": "string"}}, [], {}, "q"),
        ({"q": {"type": "string"}}, [], {"q": "x"}, None),
        ({"q": {"type": ["string", "null"]}}, [], {}, "q"),
        ({"q": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, [], {}, "q"),
        ({"q": {"$ref": "#/$defs/Text"}}, [], {}, "q"),
        ({"q": {"type": "string"}, "n": {"type": "integer"}}, ["n"], {}, "q"),
        ({"q": {"type": "string"}, "r": {"type": "string"}}, [], {}, None),
        ({"q": {"type": "string"}, "r": {"type": "string"}}, ["r"], {}, "r"),
        ({"q": {"type": "string"}, "r": {"type": "string"}}, ["q", "r"], {}, None),
        ({"q": {"type": "string"}, "r": {"type": "string"}}, ["q", "r"], {"q": "x"}, "r"),
        ({"q": {}}, [], {}, None),
        ({"q": {"type": "integer"}}, ["q"], {}, None),
        ({"q": {"type": "string", "enum": ["a"]}}, ["q"], {}, None),
        ({"q": {"anyOf": [{"enum": ["a"]}, {"type": "null"}]}}, ["q"], {}, None),
        ({"q": {"type": ["string", "integer"]}}, ["q"], {}, None),
    ],
    ids=str,
)
def test_plain_text_goes_to_the_string_that_is_left(
    properties: dict[str, Any], required: list[str], given: dict[str, Any], slot: str | None
) -> None:
    schema = Schema({"$defs": {"Text": {"type": "string"}}, "properties": properties, "required": required})
    assert schema.text_property(given) == slot


@pytest.mark.parametrize(
    ("required", "takes"),
    [([], True), (["q"], True), (["n"], False), (["q", "n"], False), (["one"], False), (["unheard of"], False)],
)
def test_a_tool_takes_text_when_that_can_be_all_it_needs(required: list[str], takes: bool) -> None:
    properties = {"q": {"type": "string"}, "n": {"type": "integer"}, "one": {"enum": ["a"]}}
    assert Schema({"properties": properties, "required": required}).takes_text is takes


def test_arguments_behind_a_reference_are_found() -> None:
    schema = Schema({"$ref": "#/$defs/Args", "$defs": {"Args": ADD}})
    assert schema.question("t", schema.problems({"b": 1})) == "`t` needs `a` (integer): first number"
    assert schema.example() == {"a": 1, "b": 1}


# -- schemas that cannot be used ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        {"type": 7},
        {"properties": 7},
        {"properties": {"a": 7}},
        {"required": "a"},
        {"$ref": 7},
        {"$ref": "#/$defs/nowhere"},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}]},
        {"$schema": ["x"]},
        {"$id": 7, "properties": {"a": {"$ref": "other"}}},
        {"patternProperties": {"[": {}}},
        {"patternProperties": {"^(a+)+$": {"type": "integer"}}},
        {"enum": 7, "items": 7, "anyOf": 7, "allOf": 7, "$defs": 7},
        {"properties": {"a": {"type": "nothing known"}}},
        7,
        None,
        "text",
    ],
    ids=str,
)
def test_a_broken_schema_judges_nothing_and_breaks_nothing(schema: Any, caplog: pytest.LogCaptureFixture) -> None:
    made = Schema(schema)
    with caplog.at_level(logging.WARNING, "dragoman.mcp"):
        for _ in range(2):
            problems = made.problems({"a": 1.0})
            assert problems == ()
            assert made.coerce_integers({"a": 1.0}) == {"a": 1.0}
            assert isinstance(made.example(), dict)
            assert isinstance(made.requested_schema([Problem("a", True, "is missing")]), dict)
            assert made.question("t", [Problem("a.b[3]", True, "is missing")]).startswith("`t` needs `a.b[3]`")
            assert made.text_property({}) is None
            assert isinstance(made.takes_text, bool)
            assert isinstance(made.merge_answer({}, [Problem("a", False, "is wrong")], "x=1", None), dict)
    assert len(caplog.records) <= 1


def test_a_broken_schema_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    schema = Schema({"type": 7})
    assert schema.problems({}) == schema.problems({}) == ()
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("dragoman.mcp", logging.WARNING)
    assert "its server will judge" in record.message


def test_a_pattern_of_another_dialect_leaves_the_rest_to_be_judged() -> None:
    schema = Schema({"properties": {"x": {"pattern": r"^\p{L}+$"}, "n": {"type": "integer"}}, "required": ["n"]})
    assert [problem.path for problem in schema.problems({"x": "ü"})] == ["n"]


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "pattern",
    [
        "^(a+)+$",
        "^(a|a)*$",
        "^a*a*a*a*a*a*$",
        f"^{'(a|aa)' * 40}$",
        f"^{'(a|b|ab)*' * 10}c",
        f"^{'(a?){9}' * 20}{'a' * 60}$",
    ],
)
def test_a_pattern_that_would_take_another_engine_for_ever_is_enforced(pattern: str) -> None:
    schema = Schema({"properties": {"x": {"pattern": pattern}}, "patternProperties": {pattern: {"type": "string"}}})
    (problem,) = schema.problems({"x": "a" * 79 + "!", "a" * 79 + "!": 1})
    assert (problem.path, problem.text.partition(" pattern")[0]) == ("x", "must match the")


@pytest.mark.parametrize(
    ("pattern", "right", "wrong"),
    [
        (r"^\d{4}-\d{2}$", "2026-01", "2026-1"),
        (r"^[\w.-]+$", "ä_1.b", "a b"),
        (r"^[^\W\d]+$", "ab", "a1"),
        (r"^\p{L}+$", "ü", "1"),
        (r"^[[&~]+$", "[&~", "]"),
        (r"^[(){3,4}]+$", "(3,)", "5"),
        (r"^a{$", "a{", "aa"),
        (r"\/\u0041\-\Z", "/A-", "/A-b"),
        ("^(?<year>[0-9]+)$", "1", "x"),
        ("^a$", "a", "a\n"),
    ],
)
def test_patterns_mean_what_they_mean_in_ecmascript(pattern: str, right: str, wrong: str) -> None:
    schema = Schema({"properties": {"x": {"pattern": pattern}}})
    assert schema.problems({"x": right}) == ()
    assert [problem.path for problem in schema.problems({"x": wrong})] == ["x"]


@pytest.mark.parametrize("pattern", ["^(?!b)", r"(a)\1", "[", "(a{100}){100}", "a" * 5000, r"\p{L}{1000}"])
def test_a_pattern_that_cannot_be_tried_in_linear_time_is_not_enforced_and_logged_once(
    pattern: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.schema.pattern._cache", {})
    place = {"properties": {"x": {"pattern": pattern}}, "patternProperties": {pattern: {"type": "string"}}}
    schema = Schema({**place, "required": ["n"], "additionalProperties": False})
    for _ in range(2):
        assert [problem.path for problem in schema.problems({"x": "b", "y": 1})] == ["n"]
    (record,) = caplog.records
    assert "is not enforced" in record.message
    assert pattern[:20] in record.message.replace("\\\\", "\\")
    assert len(record.message) < 250


@pytest.mark.timeout(10)
@pytest.mark.parametrize("hidden", [False, True])
def test_names_that_a_pattern_may_mean_are_not_called_unevaluated(
    caplog: pytest.LogCaptureFixture, hidden: bool
) -> None:
    place = {"patternProperties": {f"^{'(a|aa)' * 40}$": {}}, "unevaluatedProperties": False}
    schema = Schema({**({"x-place": place, "$ref": "#/x-place"} if hidden else place), "required": ["n"]})
    assert [problem.path for problem in schema.problems({"a" * 79 + "!": 1})] == ["n"]
    assert "`unevaluatedProperties` beside `patternProperties` is left to the server" in caplog.text
