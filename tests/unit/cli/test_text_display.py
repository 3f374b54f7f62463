"""Text on a terminal: Markdown is rendered, everything else is shown as it is, and finished lines stay."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout

import pyte
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from support.terminal import screen_of

from dragoman.cli.talk import markdown
from dragoman.cli.talk.text_display import ScreenLine, TextDisplay, renders_markdown, repaint, text_printer

PLAN = """\
# Lisbon in *three* days

Here is **your** plan, with a [map](https://example.org/map) and `code`.
The second line.

- Alfama
- Belém, the *tower*
  - nested
1. first
2. second

| day | place |
|-----|-------|
| 1   | Alfama |

```python
def walk(days: int) -> int:
    return days
```

> a quote

Done.
"""
RENDERED = """\
Lisbon in three days

Here is your plan, with a map (https://example.org/map) and code.
The second line.

 • Alfama
 • Belém, the tower
    • nested

 1 first
 2 second

 day  place
 ───────────
 1    Alfama

def walk(days: int) -> int:
    return days

▌ a quote

Done.
"""
EVIL = "\x1b]52;c;ZXZpbA==\x07 \x9d52;c;x\x9c \x9b31m \x7f \u202e\u2066 \u2028 \x08"
ENTITIES = "&#27;]52;c;x&#7; &#x9b;31m &#x202e; &#8; *x*"
# What this program itself writes: styles, the cursor up, erase below.
OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[[0-9]*A\r\x1b\[J|\r\x1b\[K")


class Stdout(io.StringIO):
    """A terminal's stdout."""

    encoding = "utf-8"  # pyright: ignore[reportAssignmentType]

    def isatty(self) -> bool:
        return True


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Stdout:
    """What is written to the terminal."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("COLUMNS", "80"), ("LINES", "40"), ("TERM", "xterm-256color")):
        monkeypatch.setenv(name, value)
    return Stdout()


def show(written: Stdout, pieces: list[str] | str, *, renders: bool = True) -> None:
    with redirect_stdout(written):
        display = TextDisplay(renders=renders)
        for piece in pieces:
            display.add(piece)
            display.flush()
        display.end()


def in_pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_markdown_is_rendered_however_it_arrives(written: Stdout, size: int) -> None:
    show(written, in_pieces(PLAN, size))
    assert screen_of(written.getvalue()) == RENDERED
    assert "\x1b[1m" in written.getvalue()


def test_a_finished_block_is_written_once(written: Stdout) -> None:
    show(written, in_pieces(PLAN, 1))
    for line in ("Alfama\n", "The second line.", "def"):
        assert OURS.sub("", written.getvalue()).count(line) <= len(PLAN)
    # Nothing goes up further than the last block is high.
    assert max(int(rows) for rows in re.findall(r"\x1b\[([0-9]+)A", written.getvalue())) <= 4
    with redirect_stdout(written):
        display = TextDisplay(renders=True)
        display.add("**one**\n\n**two**")
        display.flush()
        before = len(written.getvalue())
        display.add(" **three**")
        display.flush()
    assert "one" not in written.getvalue()[before:]


@pytest.mark.parametrize(
    "text",
    [
        "total 3\n-rw-r--r--  1 ada  ada    12 a.txt\ndrwxr-xr-x  2 ada  ada  4096 b\n",
        "roses are red\nviolets  are   blue\n\n\n\nan end\n",
        "  indented by two\nand not\n",
        "2 * 3 * 4 = 24, a_b_c, 5 < 6 > 4, x[0], C:\\dir, a & b, ~home, 1986.\n",
        "    four spaces\n      six\n",
        "| no | table |\n",
        "#hashtag and #1\n",
        "col\tumn\n",
        "…and 日本語\n",
    ],
)
def test_text_without_markup_is_shown_as_it_is(written: Stdout, text: str) -> None:
    show(written, in_pieces(text, 3))
    assert screen_of(written.getvalue()) == text.expandtabs()
    assert "\x1b" not in written.getvalue()


def test_plain_text_is_never_painted_twice(written: Stdout) -> None:
    show(written, in_pieces("one two three " * 20, 5))
    assert written.getvalue() == "one two three " * 20 + "\n"


@pytest.mark.parametrize("text", [EVIL, ENTITIES, f"# {EVIL}\n\n**{EVIL}**", f"`{EVIL}`", f"```\n{EVIL}\n```"])
@pytest.mark.parametrize("size", [1, 1000])
def test_no_text_commands_the_terminal(written: Stdout, text: str, size: int) -> None:
    show(written, in_pieces(text, size))
    left = OURS.sub("", written.getvalue())
    assert not set(left) & set("\x1b\x07\x08\x7f\x9b\x9c\x9d\u202e\u2066\u2028")
    assert "\N{REPLACEMENT CHARACTER}" in left


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[bank](https://evil.example/x)", "bank (https://evil.example/x)\n"),
        ("![a cat](https://evil.example/x.png)", "a cat (https://evil.example/x.png)\n"),
        ("![](https://evil.example/x.png)", "https://evil.example/x.png\n"),
        ("<https://example.org>", "https://example.org (https://example.org)\n"),
        ("[x](javascript:alert)", "[x](javascript:alert)\n"),
        ("**b** <b>html</b> <script>", "b <b>html</b> <script>\n"),
        ("<div>\nblock\n</div>", "<div>\nblock\n</div>\n"),
        ("[bold red]no[/] [link=https://evil.example]x[/link] :smile:", None),
        ("**b** [bold]no[/bold] :smile:", "b [bold]no[/bold] :smile:\n"),
        ("see [1]\n\n[1]: https://evil.example", None),
        (r"\*not bold\* &amp; more", "*not bold* & more\n"),
    ],
)
def test_nothing_is_hidden(written: Stdout, text: str, shown: str | None) -> None:
    show(written, [text])
    assert screen_of(written.getvalue()) == (shown or f"{text}\n")
    assert "\x1b]" not in written.getvalue()


@pytest.mark.parametrize(
    "text", ["> " * 60 + "deep", "- " * 60 + "deep", "*" * 5000, "[" * 5000, "`" * 5000, "|" * 999]
)
def test_deeply_nested_markup_is_shown(written: Stdout, text: str) -> None:
    show(written, [text])
    assert OURS.sub("", written.getvalue()).strip()


def test_a_table_that_is_too_wide_is_shown_as_it_is(written: Stdout) -> None:
    table = "\n".join(" | ".join(row) for row in (["wide"] * 60, ["---"] * 60, ["cell"] * 60))
    show(written, [table])
    assert written.getvalue() == f"{table}\n"


def test_a_very_long_block_is_shown_as_it_is(written: Stdout) -> None:
    lines = [f"- line {number} **bold**" for number in range(1700)]
    show(written, in_pieces("\n".join(lines), 20_000))
    assert screen_of(written.getvalue(), rows=20).endswith("- line 1699 **bold**\n")
    assert "- line 1600 **bold**\n" in written.getvalue()


@pytest.mark.parametrize("source", ["some *bold* words\n\n" * 16_000, "*b* " * 64_000, "[" * 64_000])
def test_rendering_megabytes_is_given_up_early(written: Stdout, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    parsed: list[int] = []
    split_blocks = markdown.split_blocks

    def counted(text: str) -> list[markdown.Block]:
        parsed.append(len(text))
        return split_blocks(text)

    monkeypatch.setattr(markdown, "split_blocks", counted)
    show(written, [source])
    assert max(parsed) <= 32_000
    assert sum(parsed) < 250_000
    letters = re.sub(r"\x1b\[[0-9;]*[mAJK]|[^a-z[]", "", written.getvalue())
    is_whole = letters == re.sub("[^a-z[]", "", source)
    assert is_whole
    assert written.getvalue().rstrip()[-20:] == source.rstrip()[-20:]


def test_the_column_in_an_endless_line_is_clear(written: Stdout) -> None:
    with redirect_stdout(written):
        display = TextDisplay(renders=False)
        for _ in range(3_000):
            display.add("日b ")
            assert len(display._last_line) <= 4_000  # pyright: ignore[reportPrivateUsage]
        assert display.column == 3_000 * 4 % 80 or display.column is None
        display.add("x")
        assert display.column == (3_000 * 4 + 1) % 80


def test_a_text_that_is_no_longer_rendered_ends_its_line(written: Stdout) -> None:
    show(written, ["*b* " * 9_000])
    assert written.getvalue()[-1] == "\n"


def test_a_block_that_is_higher_than_the_screen_is_scrolled(written: Stdout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "8")
    show(written, in_pieces("\n".join(f"- item **{number}**" for number in range(30)), 5))
    assert screen_of(written.getvalue(), rows=8).splitlines()[:7] == [f" • item {number}" for number in range(23, 30)]


def test_a_very_narrow_terminal_gets_the_text_as_it_is(written: Stdout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "12")
    show(written, in_pieces("- some *words* in a list that is longer\n- two", 3))
    assert screen_of(written.getvalue(), columns=12) == "- some *word\ns* in a list\n that is lon\nger\n- two\n"


def test_a_terminal_that_changes_its_width_is_written_to_anew(written: Stdout, monkeypatch: pytest.MonkeyPatch) -> None:
    with redirect_stdout(written):
        display = TextDisplay(renders=True)
        display.add("some **bold")
        display.flush()
        monkeypatch.setenv("COLUMNS", "30")
        display.add("** text")
        display.end()
    assert screen_of(written.getvalue()) == "some **bold\nsome bold text\n"


def test_the_mark_of_a_list_is_not_taken_for_something_else(written: Stdout) -> None:
    show(written, ["Shopping", "\n", "-", " milk", "\n-", " tea", "\n\n", "--", "-\n", "end"])
    assert screen_of(written.getvalue()) == f"Shopping\n\n • milk\n • tea\n\n{'-' * 80}\n\nend\n"
    # "Shopping" with a dash below it would be a heading.
    assert "\x1b[1" not in written.getvalue().split("milk", maxsplit=1)[0].replace("\x1b[1m • ", "")


def test_a_line_break_may_be_cut_in_two(written: Stdout) -> None:
    show(written, ["one\r", "\ntwo **b**\r", "\n"])
    assert screen_of(written.getvalue()) == "one\ntwo b\n"


def test_as_it_is_means_every_character_but_controls(written: Stdout) -> None:
    show(written, ["# no *heading* \x1b[31m\n", "a", "b"], renders=False)
    assert written.getvalue() == "# no *heading* \N{REPLACEMENT CHARACTER}[31m\nab\n"


@pytest.mark.parametrize(
    ("pieces", "column"), [(["ab"], 2), (["ab", "\n"], 0), (["日本"], 4), (["x" * 80], None), ([], 0)]
)
def test_the_column_of_the_cursor_is_clear(written: Stdout, pieces: list[str], column: int | None) -> None:
    with redirect_stdout(written):
        display = TextDisplay(renders=False)
        for piece in pieces:
            display.add(piece)
    assert display.column == column


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_without_styles_gets_the_text_as_it_is(
    written: Stdout, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    with redirect_stdout(written):
        assert renders_markdown()
        assert not renders_markdown(raw=True)
        monkeypatch.setenv(name, value)
        assert not renders_markdown()
        text_printer()("# *x*")
    assert written.getvalue() == "# *x*\n"


def test_a_whole_text_is_printed_as_one_that_arrives(written: Stdout) -> None:
    with redirect_stdout(written):
        text_printer()(PLAN)
    assert screen_of(written.getvalue()) == RENDERED


# -- any text ----------------------------------------------------------------------------------------------------------

TABLE = "| a | b |\n|---|---|\n| 1 | 2 |\n"
markup = st.sampled_from(
    [
        "# ",
        "\n",
        "\n\n",
        "- ",
        "1. ",
        "2",
        ". ",
        "* *",
        "**",
        "*",
        "`",
        "```\n",
        TABLE,
        "a | b\n",
        ":-|-:",
        "> ",
        "    ",
        "[x](u)",
    ]
)
texts = st.lists(markup | st.text("ab \n日-=|\\&;é", max_size=8), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts)
@example([TABLE, "**", "    ", "**", "# "])  # a rule below the table, or a row of it
@example(["a\n", "** **", "b"])
@example(["a\n```b", "`"])  # the beginning of code, or code within the line
@example(["a\nb | c\n", ":-|-:", "d"])
@example(["1. a\n\n2", ". b"])
@example(["- a\n31)", "b"])
def test_a_text_in_pieces_looks_like_the_whole(written: Stdout, pieces: list[str]) -> None:
    def shown(pieces: list[str]) -> str:
        written.seek(0)
        written.truncate()
        show(written, pieces)
        return screen_of(written.getvalue())

    assert shown(pieces) == shown(["".join(pieces)])


lines = st.lists(
    st.text("abc", max_size=25).map(lambda text: ScreenLine(text, max(1, -(-len(text) // 10)))), max_size=6
)


@settings(max_examples=60, deadline=None)
@given(st.lists(lines, min_size=1, max_size=5))
def test_lines_are_painted_over(frames: list[list[ScreenLine]]) -> None:
    output, before = "", list[ScreenLine]()
    for after in frames:
        output += repaint(before, after, 100)
        before = after
    assert screen_of(output, 10) == screen_of("\n".join(line.text for line in before), 10)


def test_cursor_stays_where_the_text_ends() -> None:
    terminal = pyte.Screen(20, 10)
    stream = pyte.Stream(terminal)
    before, after = [ScreenLine("a"), ScreenLine("b"), ScreenLine("c")], [ScreenLine("a"), ScreenLine("bcd")]
    stream.feed(repaint([], before, 10).replace("\n", "\r\n"))
    stream.feed(repaint(before, after, 10).replace("\n", "\r\n"))
    assert (terminal.cursor.y, terminal.cursor.x) == (1, 3)
