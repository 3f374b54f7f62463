"""Text for a terminal or a log: control characters of untrusted text are replaced or escaped; sizes are formatted.

Control characters are C0 (with ESC, which starts terminal sequences), DEL, C1 (whose CSI and OSC need no ESC),
bidirectional controls, the two separators that some programs take for line ends, and lone surrogates.
"""

from __future__ import annotations

import re

_SAFE_SPACE = "\t\n"
_CONTROLS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional controls
    "\u2028\u2029\ud800-\udfff"
)
_IN_TEXT = re.compile(f"[{_CONTROLS}]")
_IN_LINE = re.compile(f"[{_SAFE_SPACE}{_CONTROLS}]")
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def replace_controls(text: str) -> str:
    """Replace each control character with U+FFFD; line breaks and tabs stay."""
    return _IN_TEXT.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n")) if _IN_TEXT.search(text) else text


def one_line(text: str) -> str:
    r"""Return the text as one line: controls, line breaks and tabs are escaped as `\n`, `\x1b` or `\u202e`."""
    return _IN_LINE.sub(_escape, text) if _IN_LINE.search(text) else text


def json_escaped(document: str) -> str:
    r"""Escape the control characters in a JSON document's strings as `\u001b`, which decodes to the same value.

    Between its strings a document has no control characters but line breaks, which stay.
    """
    return _IN_TEXT.sub(_escape_as_json, document) if _IN_TEXT.search(document) else document


def format_bytes(size: float) -> str:
    """Format a size: `1.5 MB`."""
    if size == 1:
        return "1 byte"
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _escape_as_json(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
