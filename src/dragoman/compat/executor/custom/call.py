"""Calls the methods of a user's object, and turns what goes wrong in them into errors for callers."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from dragoman.compat.executor.types import Wire
from dragoman.model.error import ConfigError, ServerError

W = TypeVar("W", bound=Wire)
logger = logging.getLogger("dragoman.compat")
NOT_FOUND = "not_found"


class CustomObject:
    """An object of the user's with the methods of an interface. `noun` names it in errors.

    Raises:
        ConfigError: it lacks a method, or one that takes these arguments; `option` is how it was passed.
    """

    def __init__(self, target: object, noun: str, option: str, methods: Mapping[str, tuple[str, ...]]) -> None:
        self._target = target
        self._noun = noun
        for name, arguments in methods.items():
            if not _accepts(getattr(target, name, None), len(arguments)):
                wanted = f"{name}({', '.join(arguments)})"
                raise ConfigError(f"{option}: an object of type {type(target).__name__} has no method `{wanted}`")

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method and return its value: that of an `("ok", value)` pair, or what it returned.

        `("error", "not_found")` is None.

        Raises:
            ServerError: it raised, which is logged, or returned another `("error", reason)`.
        """
        try:
            result = getattr(self._target, method)(*arguments)
            if inspect.isawaitable(result):
                result = await result
        except asyncio.CancelledError as error:
            worker = asyncio.current_task()
            if worker is None or worker.cancelling():
                raise
            raise self.error(method, "it was cancelled") from error
        except Exception as error:
            logger.exception("the %s failed to %s", self._noun, method)
            raise self.error(method, "the log says why") from error
        if isinstance(result, tuple) and len(cast("tuple[Any, ...]", result)) == 2 and result[0] in ("ok", "error"):
            word, value = cast("tuple[str, Any]", result)
            if word == "ok":
                return value
            if value == NOT_FOUND:
                return None
            raise self.error(method, str(value))
        return cast("object", result)

    def read(self, method: str, value: object, type_: type[W]) -> W:
        """Return what a method has found as an object: it may be JSON values.

        Raises:
            ServerError: it is neither.
        """
        if isinstance(value, type_):
            return value
        noun = type_.__name__.lower()
        if not isinstance(value, Mapping):
            raise self.error(method, f"it returned {type(value).__name__}, which is no {noun}")
        word, outcome = type_.from_map(cast("Mapping[str, Any]", value))
        if word == "ok":
            return cast("W", outcome)
        raise self.error(method, f"it returned a {noun} that cannot be read: {outcome}")

    def error(self, method: str, reason: str) -> ServerError:
        """Return the error for callers that a method has failed."""
        return ServerError(f"the {self._noun} failed to {method}: {reason}")


def _accepts(method: Any, count: int) -> bool:
    if not callable(method):
        return False
    try:
        inspect.signature(method).bind(*(None,) * count)
    except TypeError:
        return False
    except ValueError:  # a method without a signature, such as one written in C
        return True
    return True
