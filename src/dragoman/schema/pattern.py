"""Regular expressions of foreign schemas, run by an engine that never backtracks.

The engine is that of pydantic-core (Rust's `regex`), which comes with the MCP SDK. A search takes time proportional to
the size of the pattern times the length of the text, which is charged to the step budget before it begins. A pattern
that is too large or that the engine cannot parse, such as a look-ahead or a back-reference, is not enforced, and a
warning is logged.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from msgspec import Struct
from pydantic_core import SchemaError, SchemaValidator, core_schema

from dragoman.schema.budget import BudgetExhausted, try_spend

logger = logging.getLogger("dragoman.mcp")

# Maximum states of a pattern with its repeats expanded, and maximum length of its source.
_MAX_STATES, _MAX_PATTERN_LENGTH = 2_000, 2_000
# Budget steps per state when a pattern is compiled, and characters times states searched per step.
_STEPS_PER_STATE, _CHARACTERS_PER_STEP = 8, 60
# States that a Unicode class (`\p{L}`) counts for: it is a table of hundreds of ranges.
_UNICODE_CLASS_STATES = 50
# Tokens of a character class (`[a-z_]`) that count as one more state.
_CLASS_TOKENS_PER_STATE = 16
_LOGGED_LENGTH = 60
# Compiled patterns in the cache: some of them take half a megabyte.
_CACHE_SIZE = 256

_TOKEN = re.compile(
    r"""\\(?:[pP]\{[^{}]*\}|[ux]\{[^{}]*\}|.)   # an escape
    |\{(?P<least>\d{1,9})(?:,(?P<most>\d{0,9}))?\}  # a counted repeat
    |\((?:\?(?:P?<\w+>|[a-zA-Z-]*:?))?            # a group begins
    |.""",
    re.VERBOSE | re.DOTALL,
)
# ECMAScript's classes in this engine's syntax: plain, and within `[^…]`. Non-ASCII characters count as letters: whether
# they are depends on the schema's author, and what passes here is validated by the server.
_CLASSES: Final = {
    r"\d": ("[0-9]", "[0-9]"),
    r"\D": ("[^0-9]", "[^0-9]"),
    r"\w": (r"[0-9A-Za-z_[^\x00-\x7F]]", "[0-9A-Za-z_]"),
    r"\W": ("[^0-9A-Za-z_]", r"[\x00-\x7F&&[^0-9A-Za-z_]]"),
    r"\Z": (r"\z", r"\Z"),
}


class _PatternTranslator:
    """Translates a pattern to the engine's syntax and estimates its number of states."""

    def __init__(self, pattern: str) -> None:
        self._text: list[str] = []
        self._sizes = [0]
        self._atom = self._class_tokens = 0
        self._in_class = self._is_negated = False
        for match in _TOKEN.finditer(pattern):
            if self._in_class:
                self._add_in_class(match[0])
            elif match["least"] is not None:
                # The last atom is repeated that often.
                self._grow(self._atom * max(int(match["most"] or match["least"]) - 1, 0))
                self._text.append(match[0])
            else:
                self._add_outside_class(match[0])

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def size(self) -> int:
        return sum(self._sizes) + 1

    def _grow(self, states: int) -> None:
        self._atom += states
        self._sizes[-1] += states

    def _add_outside_class(self, symbol: str) -> None:
        if symbol.startswith("("):
            self._sizes.append(0)
        elif symbol == ")" and len(self._sizes) > 1:
            self._atom = self._sizes.pop()
            self._sizes[-1] += self._atom
        elif symbol not in "*+?|^$":
            self._atom = 0
            self._grow(_UNICODE_CLASS_STATES if symbol.startswith((r"\p", r"\P")) else 1)
        self._in_class, self._is_negated = symbol == "[", False
        # A brace that is no repeat is a literal brace.
        self._text.append(r"\{" if symbol == "{" else _CLASSES.get(symbol, (symbol,))[0])

    def _add_in_class(self, symbol: str) -> None:
        """Translate a token of a character class, where brackets, ampersands and tildes are literal."""
        self._class_tokens += 1
        if self._class_tokens % _CLASS_TOKENS_PER_STATE == 0:
            self._grow(1)
        if symbol == "]":
            self._in_class = False
        elif symbol == "^" and self._text[-1] == "[":
            self._is_negated = True
        elif symbol.startswith((r"\p", r"\P")):
            self._grow(_UNICODE_CLASS_STATES)
        elif len(symbol) > 1 and not symbol.startswith("\\"):
            symbol = "".join(map(re.escape, symbol))  # outside a class it is a group or a repeat
        elif symbol in "[&~":
            symbol = f"\\{symbol}"
        self._text.append(_CLASSES.get(symbol, (symbol, symbol))[self._is_negated])


class Matcher(Struct, frozen=True):
    """A compiled pattern and its size."""

    engine: SchemaValidator
    size: int

    def search(self, text: str) -> bool:
        """True when the pattern matches anywhere in the text. Raises BudgetExhausted when too few steps are left."""
        if not try_spend(1 + self.size * len(text) // _CHARACTERS_PER_STEP):
            raise BudgetExhausted
        return self.engine.isinstance_python(text)


# The patterns compiled last, the oldest first; None for those that are not enforced.
_cache: dict[str, Matcher | None] = {}


def compile_pattern(pattern: object) -> Matcher | None:
    """Compile a pattern, or return it from the cache; None when it cannot be enforced, which is logged the first time.

    Raises:
        BudgetExhausted: too few steps are left to compile it.
    """
    if not isinstance(pattern, str):
        return None
    if pattern not in _cache:
        matcher = _compile(pattern)
        while len(_cache) >= _CACHE_SIZE:
            del _cache[next(iter(_cache))]
        _cache[pattern] = matcher
    return _cache[pattern]


def _compile(pattern: str) -> Matcher | None:
    translation = _PatternTranslator(pattern[:_MAX_PATTERN_LENGTH])
    if not try_spend(len(pattern[:_MAX_PATTERN_LENGTH]) + _STEPS_PER_STATE * min(translation.size, _MAX_STATES)):
        raise BudgetExhausted
    if len(pattern) > _MAX_PATTERN_LENGTH or translation.size > _MAX_STATES:
        return _log_not_enforced(pattern, "it is too large")
    schema = core_schema.str_schema(pattern=translation.text, regex_engine="rust-regex", strict=True)
    try:
        return Matcher(SchemaValidator(schema), translation.size)
    except SchemaError:
        return _log_not_enforced(pattern, "it cannot be matched in linear time")


def _log_not_enforced(pattern: str, why: str) -> None:
    logger.warning(
        "a pattern of a tool's schema is not enforced, its server will judge: %s: %r", why, pattern[:_LOGGED_LENGTH]
    )


def matches(pattern: object, text: str) -> bool:
    """True when the pattern matches anywhere in the text; False also when it cannot be tried."""
    try:
        matcher = compile_pattern(pattern)
        return matcher is not None and matcher.search(text)
    except BudgetExhausted:
        return False
