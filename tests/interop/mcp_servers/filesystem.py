"""server-filesystem: fourteen tools, structured results beside the texts."""

from __future__ import annotations

import base64
from pathlib import Path

from .server import McpServer, node
from .step import Step, without

NAME = "@modelcontextprotocol/server-filesystem"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
times = without(r"(created|modified|accessed): [^\n]+")


def prepare(here: Path) -> None:
    (here / "poem.txt").write_text("one\ntwo\nthree — naïve\n")
    (here / "pixel.png").write_bytes(PIXEL)
    (here / "sub").mkdir()
    (here / "sub" / "deep.txt").write_text("deep\n")


def steps(here: Path) -> list[Step]:
    def at(name: str) -> str:
        return str(here / name)

    edit = {"oldText": "two", "newText": "2"}
    return [
        Step("list_allowed_directories"),
        Step("read_file", {"path": at("poem.txt")}),
        Step("read_text_file", {"path": at("poem.txt"), "head": 2}),
        Step("read_text_file", {"path": at("nowhere.txt")}),
        Step("read_text_file", {"path": "/etc/hostname"}),
        Step("read_media_file", {"path": at("pixel.png")}),
        Step("read_multiple_files", {"paths": [at("poem.txt"), at("sub/deep.txt"), at("nowhere.txt")]}),
        Step("write_file", {"path": at("new.txt"), "content": "new\r\n\ttext"}),
        Step("edit_file", {"path": at("poem.txt"), "edits": [edit], "dryRun": True}),
        Step("edit_file", {"path": at("poem.txt"), "edits": [edit]}),
        Step("edit_file", {"path": at("poem.txt"), "edits": [{"oldText": "nowhere", "newText": ""}]}),
        Step("create_directory", {"path": at("made/twice")}),
        Step("list_directory", {"path": str(here)}),
        Step("list_directory_with_sizes", {"path": str(here), "sortBy": "size"}),
        Step("directory_tree", {"path": str(here), "excludePatterns": ["made"]}),
        Step("move_file", {"source": at("new.txt"), "destination": at("sub/moved.txt")}),
        Step("search_files", {"path": str(here), "pattern": "**/*.txt"}),
        Step("get_file_info", {"path": at("pixel.png")}, times),
    ]


SERVER = McpServer(NAME, "mcp-js", lambda here: [*node("server-filesystem"), here], steps, prepare)
