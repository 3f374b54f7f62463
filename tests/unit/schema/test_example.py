"""Examples of arguments that a schema takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.schema.arguments import Schema


def _example(schema: Any) -> Any:
    """The example of one argument."""
    made = Schema({"$defs": {"Unit": {"enum": ["km", "mi"]}}, "properties": {"x": schema}, "required": ["x"]})
    found = made.example()
    assert made.problems(found) == ()
    return found["x"]


def test_a_text_of_which_the_schema_says_nothing_suits_its_name() -> None:
    texts = {"type": "object", "properties": {"city": {"type": "string"}, "why": {"type": "string"}}}
    assert Schema({**texts, "required": ["city", "why"]}).example() == {"city": "Lisbon", "why": "text"}
    short = {"properties": {"city": {"type": "string", "maxLength": 4}}, "required": ["city"]}
    assert Schema(short).example() == {"city": "text"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "text"),
        ({"type": "string", "default": "d", "examples": ["e"]}, "d"),
        ({"type": "string", "examples": ["e", "f"]}, "e"),
        ({"type": "string", "default": None}, "text"),
        ({"const": [7]}, [7]),
        ({"enum": ["a", "b"]}, "a"),
        ({"$ref": "#/$defs/Unit"}, "km"),
        ({"type": "string", "format": "date"}, "2026-01-31"),
        ({"type": "string", "format": "date-time"}, "2026-01-31T12:00:00Z"),
        ({"type": "string", "format": "email"}, "ada@example.org"),
        ({"type": "string", "format": "uri"}, "https://example.org/"),
        ({"type": "string", "minLength": 6}, "textxx"),
        ({"type": "string", "maxLength": 2}, "te"),
        ({"type": "string", "pattern": "^[0-9]+$"}, "1"),
        ({"type": "integer"}, 1),
        ({"type": "integer", "minimum": 5}, 5),
        ({"type": "integer", "exclusiveMinimum": 5}, 6),
        ({"type": "integer", "maximum": -5}, -5),
        ({"type": "integer", "minimum": 10, "multipleOf": 7}, 14),
        ({"type": "number", "minimum": 0.2, "maximum": 0.4}, 0.2),
        ({"type": "boolean"}, True),
        ({"type": "null"}, None),
        ({"type": ["null", "integer"]}, 1),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, 1),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, 3),
        ({"type": "array"}, ["text"]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1, 1]),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True}, [1, 2, 3]),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 0}, []),
        ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "minItems": 2}, [1, True]),
        ({"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "required": ["a"]}, {"a": 1}),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 1}),
        ({"type": "object"}, {}),
        ({"oneOf": [{"properties": {"k": {"const": "a"}}, "required": ["k"]}, {"type": "null"}]}, {"k": "a"}),
    ],
    ids=str,
)
def test_an_example_is_what_a_person_would_write(schema: Any, value: Any) -> None:
    assert _example(schema) == value


def test_only_required_arguments_are_shown_and_all_if_none_is() -> None:
    properties = {"a": {"type": "integer"}, "b": {"type": "string"}}
    assert Schema({"properties": properties, "required": ["b"]}).example() == {"b": "text"}
    assert Schema({"properties": properties}).example() == {"a": 1, "b": "text"}
    assert Schema({"type": "object"}).example() == {}


def test_what_cannot_be_had_is_left_out_if_it_may_be() -> None:
    assert Schema({"properties": {"a": False, "b": {"type": "integer"}}}).example() == {"b": 1}


def test_the_schemas_own_example_comes_first() -> None:
    assert Schema({"properties": {"a": {"type": "integer"}}, "examples": [{"a": 42}]}).example() == {"a": 42}


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"next": {"$ref": "#"}}, "required": ["next"], "type": "object"},
        {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}, "c": {"items": {"$ref": "#"}}}, "type": "object"},
        {"properties": {"v": {"$ref": "#/$defs/J"}}, "$defs": {"J": {"anyOf": [{"items": {"$ref": "#/$defs/J"}}] * 4}}},
        {"properties": {name: {"$ref": "#"} for name in "abcdefghijklmnopqrstuvwxyz"}, "type": "object"},
        {"properties": {"x": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"anyOf": [{"$ref": "#/$defs/X"}] * 8}}},
        {"properties": {"s": {"type": "string", "minLength": 10**12}, "r": {"type": "array", "minItems": 10**12}}},
        {"properties": {"n": {"type": "number", "minimum": 1e308, "multipleOf": 1e-308}}, "required": ["n"]},
    ],
    ids=str,
)
def test_no_schema_keeps_an_example_waiting(schema: Any) -> None:
    assert isinstance(Schema(schema).example(), dict)


def test_a_recursive_schema_has_an_example_that_ends() -> None:
    tree = {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/T"}}}
    schema = Schema({"$defs": {"T": tree}, "properties": {"t": {"$ref": "#/$defs/T"}}, "required": ["t"]})
    assert schema.problems(schema.example()) == ()
    assert schema.example()["t"]["n"] == 1


names = st.sampled_from(["a", "b", "c"])
strings = st.builds(
    lambda least, more: {"type": "string", "minLength": least, "maxLength": least + more},
    st.integers(0, 8),
    st.integers(0, 30),
)
numbers = st.builds(
    lambda kind, least, more: {"type": kind, "minimum": least, "maximum": least + more},
    st.sampled_from(["integer", "number"]),
    st.integers(-50, 50),
    st.integers(0, 20),
)
open_numbers = st.builds(
    lambda key, limit: {"type": "integer", key: limit},
    st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
    st.integers(-1000, 1000) | st.floats(-1000, 1000),
)
multiples = st.builds(
    lambda least, step: {"type": "integer", "minimum": least, "multipleOf": step},
    st.integers(-50, 50),
    st.integers(1, 9),
)
simple = st.one_of(
    strings,
    numbers,
    open_numbers,
    multiples,
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"enum": [2, "x"]}, {"const": None}, {}, True]),
)
schemas = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 3)),
        st.builds(
            lambda found, count: {"type": "object", "properties": found, "required": sorted(found)[:count]},
            st.dictionaries(names, inner, max_size=3),
            st.integers(0, 3),
        ),
        st.lists(inner, min_size=1, max_size=3).map(lambda found: {"anyOf": found}),
        inner.map(lambda found: {"allOf": [found]}),
    ),
    max_leaves=6,
)


@given(st.dictionaries(names, schemas, max_size=3), st.integers(0, 3))
def test_an_example_is_right(properties: dict[str, Any], count: int) -> None:
    required = sorted(properties)[:count]
    schema = Schema({"type": "object", "properties": properties, "required": required})
    example = schema.example()
    assert schema.problems(example) == ()
    assert set(example) == (set(required) or set(properties))
    assert schema.coerce_integers(example) == example
