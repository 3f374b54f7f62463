"""What an author gives for every run: a value, or a function that makes one."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from dragoman.engine.context import Context


async def value_for(ctx: Context, given: Any) -> Any:
    """The value for this run. Functions, methods, classes and partials make it; other things that can be called are it.

    An object may be callable for its own reasons, such as a client that its tools call.
    """
    if not (inspect.isroutine(given) or isinstance(given, type | partial)):
        return given
    made = cast("Callable[[Context], Any]", given)(ctx)
    return await made if inspect.isawaitable(made) else made
