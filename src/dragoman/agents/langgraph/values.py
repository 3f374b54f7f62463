"""The values of a graph as plain JSON."""

from __future__ import annotations

import json
from typing import Any


def plain(value: Any) -> Any:
    """A value as JSON, whatever it is: also models, and texts that are more than texts.

    What has no JSON form is shown as Python shows it: it may be one field of many in a graph's state.
    """
    from pydantic_core import to_json

    return json.loads(to_json(value, bytes_mode="base64", inf_nan_mode="null", fallback=str))
