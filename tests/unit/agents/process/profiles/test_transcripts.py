"""What the lines of command-line agents mean: transcripts after their formats, and the events they give."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dragoman.agents.process.events import error, result, thinking, tool_status
from dragoman.agents.process.profiles import PROFILES, profile

if TYPE_CHECKING:
    from dragoman.agents.process.events import Event

FOLDER = Path(__file__).parent / "transcripts"
CLAUDE = "6f1d2c7e-1b1f-4a8e-9a53-0c9c1c3f2a"
CODEX = "0199a213-81c0-7800-8aa1-bbab2a035a"
GEMINI = "2f0a51c4-76c4-4d5e-9d06-8f4c0a1f3b"
CURSOR = "c6b62c6f-7ead-4fd6-9922-e952131177f"

EXPECTED: dict[str, list[Event]] = {
    "claude_plain": [result("Four.", remembers=CLAUDE + "11")],
    "claude_tools": [
        thinking("A listing will do."),
        thinking("I look at the folder first."),
        tool_status("Bash: ls -la | wc -l"),
        tool_status("Task: Read the notes"),
        thinking("The notes are empty."),
        tool_status("Refused: Bash: rm notes.txt"),
        result("There are twelve files.", remembers=CLAUDE + "12"),
    ],
    "claude_limit": [error("The usage limit is reached and resets at 3pm.", "rate_limit")],
    "claude_turns": [
        thinking("One step more."),
        tool_status("Read: /srv/s1/a.txt"),
        error("the program has used up the turns it may take", "error_max_turns"),
    ],
    "claude_error": [error("There is no conversation 6f1d; The folder is another one", "error_during_execution")],
    "claude_structured": [
        tool_status('StructuredOutput: {"sum":4}'),
        result({"sum": 4}, remembers=CLAUDE + "16"),
    ],
    "codex_plain": [result("Four.", remembers=CODEX + "53")],
    "codex_tools": [
        thinking("**Looking at the folder**"),
        tool_status("Plan: 0 of 2 done, next: count"),
        thinking("I look at the folder first."),
        tool_status("Command: ls | wc -l"),
        tool_status("Plan: 1 of 2 done, next: write"),
        tool_status("github.search_issues: open"),
        tool_status("Edit: a.md, b.md"),
        tool_status("Web search: twelve"),
        tool_status("Plan: 2 of 2 done"),
        result("There are twelve files.", remembers=CODEX + "54"),
    ],
    "codex_limit": [tool_status("The usage limit is reached."), error("The usage limit is reached.", "turn.failed")],
    "codex_reconnects": [tool_status("Reconnecting... 1/5"), result("Four.", remembers=CODEX + "56")],
    "codex_refused": [
        tool_status("Command: rm -r /srv"),
        tool_status("Refused: Command: rm -r /srv"),
        tool_status("one server could not be started"),
        result("I may not do that.", remembers=CODEX + "57"),
    ],
    "gemini_plain": [result("Four.\n\nReally.", remembers=GEMINI + "77")],
    "gemini_tools": [
        thinking("I look at the folder first."),
        tool_status("run_shell_command: ls | wc -l"),
        tool_status("read_file: /srv/none"),
        tool_status("Failed: read_file: no such file"),
        tool_status("Loop detected, stopping execution"),
        result("There are twelve files.", remembers=GEMINI + "78"),
    ],
    "gemini_limit": [error("Maximum session turns exceeded")],
    "gemini_error": [error("The key is not valid.", "FatalAuthenticationError")],
    "opencode_plain": [result("Four.\n\nReally.", remembers="ses_494719016ffe85dkDMj0FPRbHK")],
    "opencode_tools": [
        thinking("A listing will do."),
        thinking("I look at the folder first."),
        tool_status("bash: ls | wc -l"),
        tool_status("Failed: read: /etc/shadow"),
        result("There are twelve files.", remembers="ses_1"),
    ],
    "opencode_error": [error("Rate limit exceeded", "APIError")],
    "cursor_plain": [result("Four.", remembers=CURSOR + "f")],
    "cursor_tools": [
        thinking("I read the notes first."),
        tool_status("Read: notes.txt"),
        tool_status('search: {"q":"twelve"}'),
        result("The notes are empty.", remembers=CURSOR + "0"),
    ],
    "cursor_pieces": [result("Four.", remembers=CURSOR + "1")],
    "cursor_stopped": [],
    "amp_plain": [
        tool_status("Bash: expr 2 + 2"),
        result("Four.", remembers="T-2775dc92-90ed-4f85-8b73-8f9766029e83"),
    ],
    "amp_error": [error("The credits are used up.", "error_during_execution")],
    "qwen_plain": [result("Four.", remembers="123e4567-e89b-12d3-a456-426614174000")],
    "qwen_api_error": [error("401 status code (no body)", "api_error")],
    "qwen_error": [error("The turns are used up.", "error_during_execution")],
}


def events_of(name: str, lines: list[bytes]) -> list[Event]:
    reader = profile(name).reader()
    return [*(event for line in lines for event in reader.feed(line)), *reader.close()]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_lines_of_a_run_become_events(name: str) -> None:
    lines = (FOLDER / f"{name}.jsonl").read_bytes().splitlines()

    assert events_of(name.split("_")[0], lines) == EXPECTED[name]


def test_every_transcript_is_tried_and_every_program_has_some() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(EXPECTED)
    assert {name.split("_")[0] for name in EXPECTED} == set(PROFILES)


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.endswith(("_plain", "_tools"))])
def test_lines_around_those_of_the_format_change_nothing(name: str) -> None:
    lines = (FOLDER / f"{name}.jsonl").read_bytes().splitlines()
    noise = [b"", b"Loaded cached credentials.", b"[1, 2]", b'"type"', b"{}", b'{"type": "news"}', b"\xff\xfe", b"{"]

    assert events_of(name.split("_")[0], [one for line in lines for one in (*noise, line)]) == EXPECTED[name]


@pytest.mark.parametrize("name", [name for name in EXPECTED if name != "cursor_stopped"])
def test_a_run_has_one_end_whatever_follows(name: str) -> None:
    lines = (FOLDER / f"{name}.jsonl").read_bytes().splitlines()
    program = name.split("_")[0]
    ends = [event for event in events_of(program, lines * 2) if event["type"] in ("result", "error")]

    assert len(ends) == 1


def test_the_last_text_is_the_answer_of_a_program_that_ends_without_one() -> None:
    lines = (FOLDER / "claude_plain.jsonl").read_bytes().splitlines()[:-1]

    assert events_of("claude", lines) == [result("Four.", remembers=CLAUDE + "11")]


def test_a_complaint_counts_when_the_output_ends_without_an_answer() -> None:
    lines = (FOLDER / "codex_limit.jsonl").read_bytes().splitlines()[:-1]

    assert events_of("codex", lines)[-1] == error("The usage limit is reached.")
