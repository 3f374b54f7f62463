"""The file with the messages typed in chats."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from dragoman.cli.talk.history import MessageHistory


def test_messages_are_kept_in_their_order_for_the_next_chat(tmp_path: Path) -> None:
    path = tmp_path / "state" / "chat_history"
    first = MessageHistory(path)
    assert first.load() == []
    assert [first.append(text) for text in ("one", "two\nlines", "two\nlines", " secret", "x" * 20_000)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert MessageHistory(path).load() == ["one", "two\nlines"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_has_grown_is_cut_down_and_broken_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "chat_history"
    lines = [json.dumps(str(number)) for number in range(2_500)]
    path.write_text("\n".join([*lines, '"torn', "17"]) + "\n")
    messages = MessageHistory(path).load()
    assert (len(messages), messages[-1]) == (998, "2499")
    assert len(path.read_text().splitlines()) == 998
    assert [each.name for each in tmp_path.iterdir()] == ["chat_history"]


def test_a_folder_that_cannot_be_written_means_no_history(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = MessageHistory(tmp_path / "file" / "chat_history")
    assert (history.load(), history.append("one")) == ([], True)
