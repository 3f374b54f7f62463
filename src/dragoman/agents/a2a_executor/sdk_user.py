"""A caller as a2a-sdk has it."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.model.user import User


def caller_of(user: User) -> Any:
    """An authenticated caller as an object of a2a-sdk's. Raises ImportError without a2a-sdk."""
    caller = _caller_type()()
    caller.user = user
    return caller


@cache
def _caller_type() -> Any:
    base: Any = import_module("a2a.auth.user").User

    def user_name(self: Any) -> str:
        return self.user.id

    members = {"is_authenticated": property(lambda _: True), "user_name": property(user_name), "user": None}
    return type("Caller", (base,), members)
