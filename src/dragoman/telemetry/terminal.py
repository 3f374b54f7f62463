"""Bold, dim and red text for terminals that want it."""

from __future__ import annotations

import os
from typing import NamedTuple, TextIO


def wants_color(stream: TextIO) -> bool:
    """True when a stream is a terminal that shows colors."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Style(NamedTuple):
    """Styles text, or leaves it as it is where `enabled` is False. The text must be free of control characters."""

    enabled: bool

    def bold(self, text: str) -> str:
        """Return the text in bold."""
        return self._apply("1", text)

    def dim(self, text: str) -> str:
        """Return the text with less contrast."""
        return self._apply("2", text)

    def red(self, text: str) -> str:
        """Return the text in red."""
        return self._apply("31", text)

    def _apply(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.enabled and text else text
