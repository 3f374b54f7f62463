"""What the scripted models of other frameworks do, and Dragoman's agent for their clients: the first word decides.

echo X     the text X
stream N   N pieces of text, one after the other
ask        a question; the answer T to it makes "Hello T"
fail       an exception
file       a file
data       a JSON object
progress X a message of progress, then the text X
take       tells in words what came with the message: every file, and the data, or that nothing did
"""

import base64
import json
from typing import Any

NAME = "scripted"
DESCRIPTION = "Plays the script of Dragoman's interop suite"

ECHO = "hello there"
WORDS = ["first", "second"]  # echoed one after the other in one conversation
PIECES = 6
MANY = 2000
QUESTION = "What is your name?"
USER = "Ada"
PROGRESS = "halfway"
FAILURE = "the model is out of order"
NOTHING = "nothing came"
DATA: dict[str, Any] = {"n": 1, "list": [1, 2.5, "x"], "deep": {"ok": True}}
FILE = b"\x89PNG\r\n\x1a\n\x00dragoman"
FILE_NAME = "dragon.png"
FILE_TYPE = "image/png"


def pieces(count: int = PIECES) -> list[str]:
    """The texts of `stream N`."""
    return [f"piece-{number} " for number in range(count)]


def words(text: str) -> tuple[str, str]:
    """The first word, and the rest. LiteLLM makes one text of a chat: there its last turn counts."""
    first, _, rest = text.rpartition("user: ")[2].strip().partition(" ")
    return first, rest


def greeting(name: str) -> str:
    """The answer to the answer."""
    return f"Hello {name}"


def taken_file(raw: bytes, media_type: str | None, name: str | None = None) -> str:
    """How `take` tells of a file."""
    return f"file {name or '-'} {media_type or '-'} {base64.b64encode(raw).decode()}"


def taken_data(value: Any) -> str:
    """How `take` tells of data; a number that has become a float is told as the integer it was."""
    return f"data {json.dumps(_as_sent(value), sort_keys=True)}"


def _as_sent(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_sent(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_sent(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def unknown(word: str) -> str:
    """The answer to what is not in the script."""
    return f"no such word in the script: {word}"
