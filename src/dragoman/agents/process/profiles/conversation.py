"""What a program calls a conversation."""

from __future__ import annotations

import re
from typing import Any

# It becomes an argument of a command: it must not look like an option, nor like a path elsewhere.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)


def conversation_id(value: Any) -> str | None:
    """The value if it can be put on a command line; None when it is anything else."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None
