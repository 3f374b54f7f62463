"""Every type of the document, written with lists as its page writes them, survives the way to JSON and back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import dragoman.compat.executor as a2a
from dragoman.compat.executor.types import Wire

TYPES: dict[str, type[Wire]] = {
    name: found
    for name in a2a.__all__
    if isinstance(found := getattr(a2a, name), type) and issubclass(found, Wire) and found is not a2a.Event
}
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=5)
JSON = st.dictionaries(WORDS, st.none() | st.booleans() | st.integers(0, 9) | WORDS, min_size=1, max_size=2)
PARTS = ("TextPart", "FilePart", "DataPart")
# Fields whose values are more than their types say.
SPECIAL: dict[tuple[str, str], Any] = {
    ("FileBytes", "bytes"): st.sampled_from(["", "aGk=", "AAAA"]),
    ("TaskStatus", "state"): st.sampled_from(list(a2a.TaskState)),
    ("Message", "role"): st.sampled_from(["user", "agent", a2a.Role.USER, a2a.Role.AGENT]),
    ("FilePart", "file"): st.deferred(lambda: values("FileBytes") | values("FileURI")),
    ("AgentCapabilities", "extensions"): st.just([]),
}


def values(name: str) -> st.SearchStrategy[Any]:
    """Objects of a type; optional members are sometimes left out, and lists are lists."""
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for field in structs.fields(TYPES[name]):
        value = SPECIAL.get((name, field.name))
        drawn = of(msgspec.inspect.type_info(field.type)) if value is None else value
        (required if field.required else optional)[field.name] = drawn
    return st.fixed_dictionaries(required, optional=optional).map(lambda members: TYPES[name](**members))


def of(kind: Any) -> st.SearchStrategy[Any]:
    match kind:
        case msgspec.inspect.UnionType(types=types):
            return st.one_of([of(each) for each in types])
        case msgspec.inspect.VarTupleType(item_type=item):
            return st.lists(of(item), max_size=2)
        case msgspec.inspect.StructType(cls=cls):
            return st.deferred(lambda: values(cls.__name__))
        case msgspec.inspect.DictType():
            return JSON
        case msgspec.inspect.NoneType():
            return st.none()
        case msgspec.inspect.BoolType():
            return st.booleans()
        case msgspec.inspect.IntType():
            return st.integers(0, 99)
        case msgspec.inspect.StrType():
            return WORDS
        case _:
            raise AssertionError(f"no values for {kind}")


@pytest.mark.requirement("S2-98", "S2-114")
@pytest.mark.parametrize("name", sorted(TYPES))
def test_a_type_survives_the_way_to_json_and_back(name: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(values(name))
    def survives(value: Wire) -> None:
        assert type(value).from_map(value.to_map()) == ("ok", value)
        assert msgspec.json.decode(msgspec.json.encode(value.to_map())) == value.to_map()

    survives()


def test_all_types_of_the_document_are_among_them() -> None:
    assert {*PARTS, "Message", "Task", "Artifact", "AgentCard", "TaskPushConfig", "MessageSendParams"} < set(TYPES)
    assert len(TYPES) >= 22


def test_a_list_is_as_good_as_a_tuple() -> None:
    parts: Any = [a2a.TextPart(text="hi")]
    assert a2a.Artifact(id="a", parts=parts) == a2a.Artifact(id="a", parts=tuple(parts))
    assert hash(a2a.PushAuthInfo(schemes=["Bearer"])) == hash(a2a.PushAuthInfo(schemes=("Bearer",)))  # type: ignore[arg-type]
