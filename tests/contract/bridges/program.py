"""The programs of the contract: `program.py PORT ORDER…` writes JSON lines, `program.py PORT -p …` is a coding agent.

The coding agent reads its prompt from standard input, writes the lines of Claude Code, and continues the conversation
named after `--resume`.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

from checkpoints import block_at

IMAGE = b"\x89PNG\r\n\x1a\n\x00\xff"


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def remembered(file: Path, text: str) -> str:
    texts: list[str] = json.loads(file.read_text()) if file.exists() else []
    texts.append(text)
    file.write_text(json.dumps(texts))
    return json.dumps(texts)


def work(port: int, text: str) -> None:
    order, _, rest = text.partition("\n")[0].partition(" ")
    match order:
        case "tell":
            say(text="one ")
            block_at(port, "tell")
            say(text="two")
        case "remember":
            say(result=remembered(Path(".texts"), text))
        case "ask":
            say(text="Well. ")
            say(ask="How many days?")
            say(text=f"{sys.stdin.readline().strip()} days.")
        case "wait":
            block_at(port, "wait")
            say(text="done")
        case "refuse":
            say(error="no bread left")
        case "look":
            [name] = os.environ["DRAGOMAN_FILES"].splitlines()
            say(result=json.dumps(["image/png", base64.b64encode(Path(name).read_bytes()).decode()]))
        case "draw":
            say(artifact={"name": "dot.png", "base64": base64.b64encode(IMAGE).decode(), "media_type": "image/png"})
        case "read":
            say(result=text.partition("\n")[2])
        case "plan":
            say(result={"city": "Porto", "days": 3})
        case "step":
            say(status="looking")
            say(text="found")
        case "who":
            say(text=os.environ["DRAGOMAN_USER"])
        case _:
            raise AssertionError(f"an unknown order: {order} {rest}")


def result(conversation: str, **line: Any) -> None:
    say(**{"type": "result", "subtype": "success", "is_error": False, "session_id": conversation, **line})


def code(port: int, arguments: list[str]) -> None:
    resumed = arguments[arguments.index("--resume") + 1] if "--resume" in arguments else ""
    conversation = resumed or "conversation-1"
    text = sys.stdin.read().strip()
    match text.partition("\n")[0].partition(" ")[0]:
        case "remember":
            # What it knows of a conversation that it was not asked to continue would be another one's.
            known = Path(f".{resumed}")
            texts = remembered(known if resumed else Path(".forgotten"), text)
            Path(f".{conversation}").write_text(texts)
            result(conversation, result=texts)
        case "wait":
            block_at(port, "wait")
            result(conversation, result="done")
        case "refuse":
            result(conversation, result="no bread left", is_error=True)
        case "draw":
            Path("dot.png").write_bytes(IMAGE)
            result(conversation, result="drawn")
        case "look":
            [name] = os.environ["DRAGOMAN_FILES"].splitlines()
            result(conversation, result=json.dumps(["image/png", base64.b64encode(Path(name).read_bytes()).decode()]))
        case "read":
            result(conversation, result=text.partition("\n")[2])
        case "plan":
            result(conversation, structured_output={"city": "Porto", "days": 3})
        case "step":
            thought = {"type": "thinking", "thinking": "looking"}
            say(type="assistant", message={"role": "assistant", "content": [thought]}, session_id=conversation)
            result(conversation, result="found")
        case "who":
            result(conversation, result=os.environ["DRAGOMAN_USER"])
        case order:
            raise AssertionError(f"an unknown order: {order}")


if __name__ == "__main__":
    port, *arguments = sys.argv[1:]
    if arguments[0] == "-p":
        code(int(port), arguments)
    else:
        work(int(port), " ".join(arguments))
