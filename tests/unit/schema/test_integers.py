"""Integral floats become integers where the schema says integer, and nowhere else."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.schema.arguments import Schema

INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
TREE = {"$defs": {"T": {"properties": {"n": INTEGER, "next": {"$ref": "#/$defs/T"}}}}, "$ref": "#/$defs/T"}


def _spelled(value: Any) -> str:
    """JSON tells 3 from 3.0, where Python does not."""
    return msgspec.json.encode(value).decode()


@pytest.mark.parametrize(
    ("schema", "value", "fitted"),
    [
        (INTEGER, 3.0, 3),
        (INTEGER, -0.0, 0),
        (INTEGER, 3.5, 3.5),
        (INTEGER, "3", "3"),
        (INTEGER, "3.0", "3.0"),
        (INTEGER, True, True),
        (INTEGER, None, None),
        (INTEGER, 2**53 + 1, 2**53 + 1),
        (INTEGER, 2**80, 2**80),
        (INTEGER, 2.0**53, 2**53),
        (INTEGER, 1e300, 1e300),
        (NUMBER, 3.0, 3.0),
        ({}, 3.0, 3.0),
        (True, 3.0, 3.0),
        ({"type": ["integer", "null"]}, 3.0, 3),
        ({"type": ["integer", "number"]}, 3.0, 3.0),
        ({"anyOf": [INTEGER, {"type": "null"}]}, 3.0, 3),
        ({"anyOf": [INTEGER, NUMBER]}, 3.0, 3.0),
        ({"oneOf": [{"type": "string"}, INTEGER]}, 3.0, 3),
        ({"oneOf": [{"type": "integer", "maximum": 2}, NUMBER]}, 3.0, 3.0),
        ({"allOf": [NUMBER, INTEGER]}, 3.0, 3),
        ({"$ref": "#/$defs/Whole"}, 3.0, 3),
        ({"anyOf": [{"$ref": "#/$defs/Whole"}, {"type": "null"}]}, 3.0, 3),
        ({"items": INTEGER}, [1.0, "x", 2.5, 3], [1, "x", 2.5, 3]),
        ({"prefixItems": [INTEGER, NUMBER], "items": INTEGER}, [1.0, 1.0, 1.0], [1, 1.0, 1]),
        ({"items": [INTEGER, NUMBER], "additionalItems": INTEGER}, [1.0, 1.0, 1.0], [1, 1.0, 1]),
        ({"additionalProperties": INTEGER, "properties": {"n": NUMBER}}, {"n": 1.0, "i": 1.0}, {"n": 1.0, "i": 1}),
        (
            {"patternProperties": {"^i": INTEGER}, "additionalProperties": NUMBER},
            {"n": 1.0, "i": 1.0},
            {"n": 1.0, "i": 1},
        ),
        ({"properties": {"o": {"properties": {"i": INTEGER}}}}, {"o": {"i": 1.0}}, {"o": {"i": 1}}),
        (
            {
                "anyOf": [
                    {"properties": {"k": {"const": "n"}, "v": NUMBER}},
                    {"properties": {"k": {"const": "i"}, "v": INTEGER}},
                ]
            },
            {"k": "i", "v": 1.0},
            {"k": "i", "v": 1},
        ),
    ],
    ids=str,
)
def test_integers_are_where_the_schema_wants_them(schema: Any, value: Any, fitted: Any) -> None:
    made = Schema({"$defs": {"Whole": INTEGER}, "properties": {"x": schema}})
    assert _spelled(made.coerce_integers({"x": value})) == _spelled({"x": fitted})


def test_arguments_without_a_float_are_handed_back_as_they_are() -> None:
    arguments = {"a": 1, "b": ["x", {"c": None}]}
    assert Schema({"properties": {"a": INTEGER}}).coerce_integers(arguments) is arguments


def test_what_does_not_change_is_handed_back_as_it_is() -> None:
    arguments: dict[str, Any] = {"n": 1.5, "row": [1.5], "o": {"n": 1.0}}
    schema = Schema({"properties": {"n": INTEGER, "row": {"items": INTEGER}, "o": {"properties": {"n": NUMBER}}}})
    assert schema.coerce_integers(arguments) is arguments


def test_the_order_of_names_stays_and_the_input_too() -> None:
    arguments: dict[str, Any] = {"z": 1.0, "a": {"y": [2.0], "b": 3.0}, "m": 4}
    before = copy.deepcopy(arguments)
    inner = {"properties": {"b": INTEGER, "y": {"items": INTEGER}}}
    fitted = Schema({"properties": {"a": inner, "z": INTEGER}}).coerce_integers(arguments)
    assert _spelled(fitted) == '{"z":1,"a":{"y":[2],"b":3},"m":4}'
    assert _spelled(arguments) == _spelled(before)


def test_a_recursive_schema_is_followed_as_deep_as_the_value_goes() -> None:
    assert _spelled(Schema(TREE).coerce_integers({"n": 1.0, "next": {"next": {"n": 2.0}}})) == (
        '{"n":1,"next":{"next":{"n":2}}}'
    )


def test_a_value_nested_beyond_all_measure_is_left_to_the_server() -> None:
    deep: dict[str, Any] = {"n": 1.0}
    for _ in range(3000):
        deep = {"next": deep}
    assert Schema(TREE).coerce_integers(deep) is deep
    assert Schema(TREE).problems(deep) == ()


def test_without_a_validator_alternatives_are_distinguished_by_their_types() -> None:
    schema = Schema({"properties": {"x": {"anyOf": [INTEGER, {"type": "null"}]}, "broken": {"type": 7}}})
    assert _spelled(schema.coerce_integers({"x": 3.0})) == '{"x":3}'


numbers = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.integers(-1000, 1000).map(float)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
schemas = st.recursive(
    st.sampled_from([INTEGER, NUMBER, {}, True, {"type": ["integer", "null"]}, {"type": "string"}, {"$ref": "#"}]),
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(lambda found: {"properties": found}),
        inner.map(lambda found: {"items": found}),
        inner.map(lambda found: {"additionalProperties": found}),
        st.lists(inner, min_size=1, max_size=2).map(lambda found: {"anyOf": found}),
        st.lists(inner, min_size=1, max_size=2).map(lambda found: {"allOf": found}),
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from("abc"), schemas), st.dictionaries(st.sampled_from("abc"), values))
def test_fitting_changes_no_value_and_is_done_after_once(properties: dict[str, Any], arguments: dict[str, Any]) -> None:
    schema = Schema({"properties": properties})
    before = _spelled(arguments)
    fitted = schema.coerce_integers(arguments)
    assert fitted == arguments
    assert _spelled(arguments) == before
    assert schema.coerce_integers(fitted) is fitted
    assert schema.problems(fitted) == schema.problems(arguments)


@given(st.dictionaries(st.sampled_from("abc"), st.integers(-(2**53), 2**53).map(float)))
def test_what_the_schema_takes_as_an_integer_is_one(arguments: dict[str, Any]) -> None:
    fitted = Schema({"additionalProperties": INTEGER}).coerce_integers(arguments)
    assert all(type(value) is int for value in fitted.values())
