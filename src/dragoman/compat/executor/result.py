"""Results as pairs, in the style of the source document: `("ok", value)` or `("error", reason)`."""

from __future__ import annotations

from typing import Literal, TypeAlias, TypeVar

T = TypeVar("T")

Ok: TypeAlias = tuple[Literal["ok"], T]
Failure: TypeAlias = tuple[Literal["error"], str]

NOT_FOUND: Failure = ("error", "not_found")
