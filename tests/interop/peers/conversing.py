"""The frame of a framework's client: cases with names, each reported as one JSON line.

    FRAMEWORK_client.py URL [CASE …]

    {"case": "text", "found": …}        what the framework made of the answer
    {"case": "text", "raised": "…"}     or what it raised

The agent at the URL plays framework_script.py. It runs in the framework's own environment: nothing is imported here
but the standard library.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

CASE_SECONDS = 20.0

Case = Callable[[str], Awaitable[Any]]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """A case, under the name of its function. It is given the URL, and returns what it found."""
    CASES[function.__name__] = function
    return function


async def play(url: str, names: list[str]) -> None:
    """Play the cases one after the other."""
    for name in names:
        line: dict[str, Any] = {"case": name}
        try:
            async with asyncio.timeout(CASE_SECONDS):
                line["found"] = await CASES[name](url)
        except Exception as error:  # noqa: BLE001 - what a framework raises is what its user sees
            line["raised"] = f"{type(error).__name__}: {error}"
        print(json.dumps(line), flush=True)


def converse() -> None:
    """Play what the command line names, or everything."""
    url, *names = sys.argv[1:]
    asyncio.run(play(url, names or list(CASES)))
