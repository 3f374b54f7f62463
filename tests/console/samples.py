"""Texts and files that agents of the tests return."""

from __future__ import annotations

import struct
import zlib

MARKDOWN = """\
# A heading

A paragraph with **bold**, *italic*, ~~gone~~ and `code`, a [link](https://studio.example/page "Its title"),
and a bare address: https://studio.example/bare.

## Lists

- one
- two
  - nested *two*
    1. deeper
    2. and deeper
- [x] done
- [ ] not done

1. first
2. second

> A quote
> > within a quote

```python
def greet(name: str) -> str:
    return f"Hello, {name}! <b>not bold</b>"
```

| city | days | cost |
|:-----|:----:|-----:|
| Lisbon | 3 | 420.00 |
| Porto | 2 | 210.50 |

---

An image of somewhere else: ![a cat](https://studio.example/cat.png). A hard  \nbreak. An entity: &amp; &copy; &#x41;.
"""

TEXT = "".join(f"{number:4}  a line of notes, with <tags> & entities\n" for number in range(1, 201))

SVG = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 120 80" width="240" height="160">
  <rect width="120" height="80" rx="8" fill="#0b7285"/>
  <circle cx="40" cy="40" r="20" fill="#ffd43b"/>
  <text x="66" y="45" font-size="12" fill="white">drawing</text>
</svg>
"""

HTML = """\
<!doctype html>
<title>A page</title>
<h1>A page that an agent wrote</h1>
<script>parent.pwned?.("html"); top.pwned?.("html")</script>
<img src="https://tracker.example/pixel.png" onerror="parent.pwned?.(1)">
"""


def png(width: int, height: int, hue: int = 0) -> bytes:
    """A picture: a gradient with bars."""
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            bar = (x * 8 // width) * 13 + 40
            inside = height - y < bar * height // 150
            rows += (
                bytes((30 + hue, 120, 200 - hue))
                if inside and x * 8 % width > width // 8
                else bytes((x * 60 // width + 190,) * 3)
            )
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(rows), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def pdf(text: str = "A paper of one page", *, catalog: str = "") -> bytes:
    """A PDF of one page; `catalog` are more entries of its root."""
    content = f"BT /F1 24 Tf 72 720 Td ({text}) Tj ET"
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R {catalog} >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        "/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
    ]
    file, places = "%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        places.append(len(file))
        file += f"{number} 0 obj\n{each}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    start = len(file)
    file += f"xref\n0 {size}\n0000000000 65535 f \n{table}"
    file += f"trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n"
    return file.encode("latin-1")


PDF = pdf()
