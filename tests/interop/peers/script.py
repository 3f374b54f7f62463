"""The script that every peer's server plays: what it does is chosen by the first word of the user's text.

echo X     completed, an artifact with the text X
stream N   N chunks of one artifact, each after a pause, then completed
ask        input-required; a further message T in the same task: completed, an artifact "Hello T"
fail       failed, the status says why
message    a bare Message, no task
slow       working until it is canceled
data       completed, an artifact with a data part
file       completed, an artifact with a file part
"""

from typing import Any

NAME = "scripted"
EXTENDED_NAME = "scripted-extended"
DESCRIPTION = "Plays the script of Dragoman's interop suite"
VERSION = "1.0.0"

PAUSE = 0.005  # seconds between chunks: a stream that is really one
QUESTION = "What is your name?"
LOGIN = "Log in at the page"
FAILURE = "it broke"
BARE = "just a message"
DATA: dict[str, Any] = {"n": 1, "list": [1, 2.5, "x"], "deep": {"ok": True}}
FILE = b"\x00\x01dragoman"
FILE_NAME = "blob.bin"
FILE_TYPE = "application/octet-stream"


def chunks(count: int) -> list[str]:
    """The texts that `stream N` streams."""
    return [f"chunk-{number} " for number in range(count)]


def words(text: str) -> tuple[str, str]:
    """The first word, and the rest."""
    first, _, rest = text.strip().partition(" ")
    return first, rest


def greeting(name: str) -> str:
    """The answer to the answer."""
    return f"Hello {name}"
