"""Answers to a question about arguments, as data and as text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.schema.arguments import Problem, Schema

TRIP = {
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "fast": {"type": "boolean"},
        "unit": {"enum": ["km", "mi", 3]},
    },
    "required": ["city", "days"],
}


def _typed(schema: Any, text: str) -> Any:
    """What a text becomes as the one argument that is missing."""
    made = Schema({"properties": {"x": schema, "y": {}}, "required": ["x"]})
    answered = made.merge_answer({"y": 1}, made.problems({"y": 1}), text, None)
    assert answered["y"] == 1
    return answered["x"]


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, " as it is ", " as it is "),
        ({"type": "string"}, "3", "3"),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"type": "string"}, '{"code": 1}', '{"code": 1}'),
        ({"type": "integer"}, "3", 3),
        ({"type": "integer"}, " 3\n", 3),
        ({"type": "integer"}, "many", "many"),
        ({"type": "integer"}, "x=3", 3),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "no", False),
        ({"type": "boolean"}, "perhaps", "perhaps"),
        ({"type": "array"}, "[1,2]", [1, 2]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"enum": ["km", "mi"]}, "mi", "mi"),
        ({"enum": ["km", "mi"]}, " MI ", "mi"),
        ({"enum": ["km", "mi"]}, '"mi"', "mi"),
        ({"enum": ["km", "mi"]}, "ft", "ft"),
        ({"enum": [1, 2.5, None, True]}, "1", 1),
        ({"enum": [1, 2.5, None, True]}, "null", None),
        ({"enum": [1, 2.5, None, True]}, "yes", True),
        ({"const": 7}, "7", 7),
        ({"type": ["string", "integer"]}, "7", 7),
        ({"type": ["string", "integer"]}, "[7]", "[7]"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", None),
        ({}, "7", 7),
        ({}, "seven", "seven"),
    ],
    ids=str,
)
def test_a_text_is_read_as_the_one_argument_that_is_asked_for(schema: Any, text: str, value: Any) -> None:
    found = _typed(schema, text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", {"arguments": {"city": "Porto", "days": 2}}),
        ("", {"tool": "trip", "arguments": {"city": "Porto", "days": 2}}),
        ("not read", {"city": "Porto", "days": 2}),
        ('{"city": "Porto", "days": 2}', None),
        ('{"arguments": {"city": "Porto", "days": 2}}', None),
        ("city=Porto\ndays=2", None),
        ("city: Porto\r\n\r\n  days : 2\n", None),
        ("city=Porto, days=2", None),
        ("city: Porto; days: 2", None),
        ('`city` = "Porto",\n"days": 2,', None),
        ("days=2, city=Porto", ["neither", "here", "nor", "there"]),
    ],
    ids=str,
)
def test_several_arguments_are_read_from_data_or_pairs(text: str, data: Any) -> None:
    schema = Schema(TRIP)
    assert schema.merge_answer({"fast": True}, schema.problems({}), text, data) == {
        "fast": True,
        "city": "Porto",
        "days": 2,
    }


def test_a_value_may_hold_commas_and_colons() -> None:
    schema = Schema(TRIP)
    found = schema.merge_answer({}, schema.problems({}), "city=Porto, Portugal: north, days=2, unit=MI, fast=no", None)
    assert found == {"city": "Porto, Portugal: north", "days": 2, "unit": "mi", "fast": False}


def test_what_cannot_be_read_is_named_next_time() -> None:
    schema = Schema(TRIP)
    found = schema.merge_answer({}, schema.problems({}), "city=Porto\ndays=a few", None)
    assert schema.problems(found) == (Problem("days", False, 'must be an integer, not "a few"'),)


def test_words_that_name_nothing_leave_the_arguments_as_they_are() -> None:
    schema = Schema(TRIP)
    assert schema.merge_answer({"fast": True}, schema.problems({}), "whatever you like", None) == {"fast": True}
    assert schema.merge_answer({"fast": True}, schema.problems({}), "  ", None) == {"fast": True}


@pytest.mark.parametrize("data", [3, 0, "three", [1], False])
def test_data_that_is_no_object_is_the_one_value(data: Any) -> None:
    schema = Schema(TRIP)
    arguments = {"city": "Porto"}
    assert schema.merge_answer(arguments, schema.problems(arguments), "text", data) == {"city": "Porto", "days": data}


def test_a_wrong_argument_is_replaced() -> None:
    schema = Schema(TRIP)
    arguments = {"city": "Porto", "days": "two"}
    assert schema.merge_answer(arguments, schema.problems(arguments), "2", None) == {"city": "Porto", "days": 2}
    assert arguments == {"city": "Porto", "days": "two"}


def test_an_unknown_name_is_dropped_so_that_the_question_can_be_answered() -> None:
    schema = Schema({**TRIP, "additionalProperties": False})
    arguments = {"citty": "Porto", "days": 2}
    found = schema.merge_answer(arguments, schema.problems(arguments), "Lisbon", None)
    assert found == {"days": 2, "city": "Lisbon"}
    only = {"city": "Porto", "days": 2, "extra": 1}
    assert schema.merge_answer(only, schema.problems(only), "ok", None) == {"city": "Porto", "days": 2}


def test_an_argument_called_arguments_is_one() -> None:
    schema = Schema({"properties": {"arguments": {"type": "object"}, "n": {}}, "required": ["arguments", "n"]})
    given = {"arguments": {"a": 1}, "n": 2}
    assert schema.merge_answer({}, schema.problems({}), "", given) == given


FILTER = {
    "properties": {
        "filter": {
            "type": "object",
            "properties": {"from": {"type": "integer"}, "to": {"type": "integer"}, "by": {"type": "string"}},
            "required": ["from", "to"],
            "additionalProperties": False,
        },
        "rows": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}}}},
    }
}


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("1", None),
        ("filter.from=1", None),
        ('{"filter": {"from": 1}}', None),
        ("", {"from": 1}),
        ("", {"filter": {"from": 1, "to": 2, "by": "x"}}),
        ("", 1),
    ],
    ids=str,
)
def test_what_is_missing_inside_a_value_is_added_to_it(text: str, data: Any) -> None:
    schema = Schema(FILTER)
    arguments = {"filter": {"to": 2, "by": "x"}}
    found = schema.merge_answer(arguments, schema.problems(arguments), text, data)
    assert found == {"filter": {"to": 2, "by": "x", "from": 1}}
    assert arguments == {"filter": {"to": 2, "by": "x"}}


def test_what_is_wrong_inside_a_value_is_given_again_with_all_around_it() -> None:
    schema = Schema(FILTER)
    arguments = {"filter": {"from": "x", "to": 2, "by": "x"}}
    problems = schema.problems(arguments)
    assert schema.merge_answer(arguments, problems, "", {"filter": {"from": 1, "to": 2}}) == {
        "filter": {"from": 1, "to": 2}
    }
    assert schema.merge_answer(arguments, problems, "7", None) == {"filter": {"from": 7, "to": 2, "by": "x"}}


def test_places_in_arrays_can_be_answered_too() -> None:
    schema = Schema(FILTER)
    arguments = {"rows": [{"id": 1}, {"id": "x"}, {"id": "y"}]}
    problems = schema.problems(arguments)
    found = schema.merge_answer(arguments, problems, "rows[1].id=2, rows[2].id: 3", None)
    assert found == {"rows": [{"id": 1}, {"id": 2}, {"id": 3}]}
    assert schema.merge_answer(arguments, problems, '[{"id": 5}]', None) == {"rows": [{"id": 5}]}


def test_an_unknown_name_inside_a_value_is_dropped() -> None:
    schema = Schema(FILTER)
    arguments = {"filter": {"from": 1, "to": 2, "form": 3}}
    assert schema.merge_answer(arguments, schema.problems(arguments), "ok", None) == {"filter": {"from": 1, "to": 2}}


def test_a_question_about_the_whole_can_be_answered_with_any_argument() -> None:
    schema = Schema({"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})
    assert schema.merge_answer({}, schema.problems({}), "b=1", None) == {"b": 1}
    single = Schema({"properties": {"a": {"type": "string"}}, "minProperties": 1})
    assert single.merge_answer({}, single.problems({}), "x", None) == {"a": "x"}


@pytest.mark.timeout(10)
def test_a_very_long_answer_is_read_soon() -> None:
    schema = Schema(TRIP)
    for text in ("\n" * 200_000, " " * 200_000 + "x", "city" * 50_000, ", " * 100_000):
        assert schema.merge_answer({}, schema.problems({}), text, None) == {}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["city", "filter", "x"]), inner),
    max_leaves=6,
)
words = st.lists(st.sampled_from(["city", "=", ":", ",", "\n", '"', "{", "}", "filter.from", "[1]", "yes", "é"]))


@given(
    st.sampled_from([TRIP, FILTER, {"type": 7}, {}]),
    st.dictionaries(st.sampled_from(["city", "days", "filter", "rows"]), json_values),
    words.map("".join) | st.text(),
    json_values,
)
def test_no_answer_breaks_anything(schema: Any, arguments: dict[str, Any], text: str, data: Any) -> None:
    made = Schema(schema)
    problems = made.problems(arguments)
    found = made.merge_answer(arguments, problems, text, data)
    assert isinstance(found, dict)
    assert made.question("t", made.problems(found)) is not None
    for about in ("city", "filter.from", "rows[9].id", "", "nowhere.to.be[0]"):
        for missing in (True, False):
            assert isinstance(made.merge_answer(arguments, [Problem(about, missing, "is wrong")], text, data), dict)
