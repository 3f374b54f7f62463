"""Renders blocks of Markdown for a terminal, with rich. Imported only where Markdown is to be rendered."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import markdown
from rich.console import Console
from rich.segment import Segment, Segments
from rich.syntax import Syntax

from dragoman.telemetry.printable import replace_controls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import ConsoleOptions, RenderResult

# The parser drops what is nested more than 20 levels deep.
_MAX_LEVEL = 14
# Wide enough for nested lists and quotes, whose width rich reduces with each level.
_MIN_COLUMNS = 20

# A few hundred languages can be highlighted, some of them very slowly.
_LANGUAGES = frozenset(
    (
        *("bash", "c", "c++", "cpp", "css", "diff", "go", "html", "http", "java", "javascript", "js", "json", "php"),
        *("py", "python", "rb", "ruby", "rs", "rust", "sh", "shell", "sql", "toml", "ts", "typescript", "xml", "yaml"),
    )
)
_MAX_HIGHLIGHTED = 8_000


class Block(NamedTuple):
    """A heading, paragraph, list or the like: its lines in the source, and the tokens of Markdown in it."""

    start: int
    end: int
    tokens: list[Token]


def split_blocks(source: str) -> list[Block]:
    """Split a text into its blocks. More text can change the last one, and no other."""
    blocks: list[Block] = []
    for token in _parser().parse(source):
        if token.level == 0 and token.nesting >= 0 and token.map is not None:
            blocks.append(Block(token.map[0], token.map[1], []))
        blocks[-1].tokens.append(token)
    return blocks


def is_plain(block: Block, lines: list[str]) -> bool:
    """True when a block is to be shown as it is: text without markup, indented text, or what the parser cuts off."""
    if block.tokens[0].type == "code_block" or any(token.level > _MAX_LEVEL for token in block.tokens):
        return True
    if block.tokens[0].type != "paragraph_open":
        return False
    children = block.tokens[1].children or []
    if any(child.type not in ("text", "softbreak", "hardbreak") for child in children):
        return False
    # Escapes and entities are text too, but not that of the source.
    parsed = "".join(child.content if child.type == "text" else "\n" for child in children)
    return [line.strip() for line in parsed.split("\n")] == [line.strip() for line in lines]


def render(block: Block, columns: int) -> list[str]:
    """Render a block in lines of at most `columns` cells, with escape sequences for styles and for nothing else.

    Returns nothing when there is nothing to see, as for a block of code that has only begun, or when a part of the text
    has no place, as in a table that is too wide, or on a terminal that is too narrow.
    """
    if columns < _MIN_COLUMNS:
        return []
    console = _console(columns)
    document = _document()
    document.parsed = list(_without_hidden_text(block.tokens))
    lines = [_cleaned(line) for line in console.render_lines(document, pad=False)]
    with console.capture() as capture:
        console.print(Segments(segment for line in lines for segment in (*line, Segment.line())), end="")
    missing = _letters(_texts(document.parsed)) - _letters(segment.text for line in lines for segment in line)
    rendered = capture.get().strip("\n")
    return rendered.split("\n") if rendered and not missing else []


# -- with markdown-it --------------------------------------------------------------------------------------------------


@cache
def _parser() -> MarkdownIt:
    # HTML is text here. A reference may come after the block that uses it, which has been printed then.
    return MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("reference")


def _without_hidden_text(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield tokens in which line breaks are kept, and images show their address."""
    for token in tokens:
        if token.type == "softbreak":
            yield Token("hardbreak", "br", 0)
        elif token.type == "image":
            alt, address = token.content, str(token.attrs.get("src", ""))
            yield Token("text", "", 0, content=f"{alt} ({address})" if alt else address)
        else:
            if token.children:
                token.children = list(_without_hidden_text(token.children))
            yield token


def _texts(tokens: Iterable[Token]) -> Iterator[str]:
    for token in tokens:
        if token.children:
            yield from _texts(token.children)
        elif token.type != "inline":
            yield token.content


def _letters(texts: Iterable[str]) -> Counter[str]:
    return Counter(character for text in texts for character in text if character.isalnum())


# -- with rich ---------------------------------------------------------------------------------------------------------


class _Heading(markdown.Heading):
    LEVEL_ALIGN: ClassVar = dict.fromkeys(markdown.Heading.LEVEL_ALIGN, "left")


class _Code(markdown.CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # The colors are those of the terminal. There is no frame or background, so that code can be copied.
        code = str(self.text).rstrip()
        language = self.lexer_name.lower()
        if language not in _LANGUAGES or len(code) > _MAX_HIGHLIGHTED:
            language = "text"
        yield Syntax(code, language, theme="ansi_dark", word_wrap=True, background_color="default")


class _Document(markdown.Markdown):
    elements: ClassVar = markdown.Markdown.elements | {"heading_open": _Heading, "fence": _Code, "code_block": _Code}


@cache
def _document() -> _Document:
    return _Document("", hyperlinks=False)  # it builds a parser, which takes longer than a block


@cache
def _console(columns: int) -> Console:
    return Console(force_terminal=True, width=columns, legacy_windows=False, highlight=False)


def _cleaned(line: list[Segment]) -> list[Segment]:
    """Return a line without trailing spaces, links or control characters: an entity such as `&#27;` may hold one."""
    clean = [
        Segment(replace_controls(each.text), each.style.update_link(None) if each.style else None)
        for each in line
        if not each.control
    ]
    while clean and not clean[-1].text.strip() and not (clean[-1].style and clean[-1].style.bgcolor):
        clean.pop()
    if clean and not (clean[-1].style and clean[-1].style.bgcolor):
        clean[-1] = Segment(clean[-1].text.rstrip(), clean[-1].style)
    return clean
