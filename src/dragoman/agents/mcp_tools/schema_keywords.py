"""The keywords of JSON schema, so that judging ends soon: their work is counted, and no value is written out.

The library's own keywords put the whole value into each error's message, compare all items with each other, and try
any regular expression. Here a message is empty: what is wrong is said by `problem`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, cast

import msgspec
from jsonschema import Draft202012Validator, validators
from jsonschema.exceptions import ValidationError

from dragoman.agents.mcp_tools.fitting import holds_float
from dragoman.agents.mcp_tools.pattern import is_affordable, is_found, is_safe
from dragoman.agents.mcp_tools.schema_effort import spend
from dragoman.agents.mcp_tools.schema_outline import FORBIDDEN, Node, list_of, node_of

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError]]

# How many errors are looked at in one alternative.
_MOST_ERRORS = 20
# What one schema costs that is held against one value, in steps.
_DESCENT = 8
# A name may be this long where the library itself tries patterns on it.
_LONGEST_NAME = 64
# As many schemas take about a quarter of a second to be checked, once.
_LARGEST = 4_000


def check(schema: Any) -> None:
    """Raises ValueError when a schema is too large, or tells names apart by a pattern that cannot be tried here."""
    waiting: list[Any] = [schema]
    patterns: list[Any] = []
    strict, count = False, 0
    while waiting:
        one = waiting.pop()
        node = node_of(one)
        count += bool(node)
        if count > _LARGEST:
            raise ValueError("it is too large to be judged by")
        waiting.extend(list_of(one) or node.values())
        patterns += node_of(node.get("patternProperties"))
        strict = strict or "unevaluatedProperties" in node
    for pattern in patterns:
        if not is_safe(pattern, "x" * _LONGEST_NAME if strict else ""):
            raise ValueError(f"names are told apart by a pattern that cannot be tried: {str(pattern)[:60]}")


@functools.cache
def counted(kind: type[Validator]) -> type[Validator]:
    """The validator of a draft, with its work counted: it raises Exhausted when there is too much of it."""
    theirs = cast("dict[str, Keyword]", kind.VALIDATORS)
    newest = cast("dict[str, Keyword]", Draft202012Validator.VALIDATORS)
    # An old draft may mean something else by a word; what it means by these is then kept, and counted.
    own = {name: keyword for name, keyword in _OWN.items() if theirs.get(name) is newest[name]}
    costly = {name: _costing(theirs[name], cost) for name, cost in _COSTS.items() if name in theirs and name not in own}
    made: Any = cast("Any", validators).extend(kind, {**costly, **own})
    descend = made.descend

    def descended(validator: Any, instance: Any, schema: Any, *args: Any, **named: Any) -> Iterator[ValidationError]:
        return _forbidden(instance, *args, **named) if schema is False else descend(
            validator, instance, schema, *args, **named
        )

    made.descend, made.evolve = descended, _evolve
    return cast("type[Validator]", made)


def _evolve(validator: Any, **changes: Any) -> Any:
    """The same validator for another place. Unlike the library's, it stays one that counts, whatever `$schema` says."""
    spend(_DESCENT)
    schema = changes.get("schema", validator.schema)
    return type(validator)(
        {"not": {}} if schema is False else schema,
        registry=validator._registry,
        _resolver=changes.get("_resolver", validator._resolver),
    )


def _forbidden(
    value: Any, path: Any = None, schema_path: Any = None, resolver: Any = None
) -> Iterator[ValidationError]:
    """What `false` has against a value; the library's own does not tell where it is."""
    del resolver
    places = ([] if one is None else [one] for one in (path, schema_path))
    yield ValidationError(
        "", FORBIDDEN, *places, validator_value=False, instance=value, schema=False  # pyright: ignore
    )
