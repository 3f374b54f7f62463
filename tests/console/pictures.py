"""PNG files of few bytes: a palette instead of three bytes for each pixel. The browser reads them and counts colors."""

from __future__ import annotations

import base64
import struct
import zlib

from playwright.async_api import Page

# Returns the size, at most 256 colors and, for each pixel, the number of its color. Colors are grouped by median cut:
# the box of colors that is seen most and varies most is cut in two, until there are enough.
_REDUCE = """
async (source) => {
  const bytes = Uint8Array.from(atob(source), (each) => each.charCodeAt(0));
  const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.drawImage(bitmap, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, width, height).data.buffer);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
  const parts = (color) => [color & 255, (color >> 8) & 255, (color >> 16) & 255];
  const measure = (colors) => {
    const lows = [255, 255, 255], highs = [0, 0, 0];
    let count = 0;
    for (const [color, times] of colors) {
      count += times;
      parts(color).forEach((part, axis) => {
        if (part < lows[axis]) lows[axis] = part;
        if (part > highs[axis]) highs[axis] = part;
      });
    }
    const spans = highs.map((high, axis) => high - lows[axis]);
    const span = Math.max(...spans);
    return { colors, axis: spans.indexOf(span), weight: span * span * Math.log2(count + 1), count };
  };
  const boxes = [measure([...counts])];
  while (boxes.length < 256) {
    const index = boxes.reduce((best, box, at) => (box.weight > boxes[best].weight ? at : best), 0);
    const box = boxes[index];
    if (!box.weight) break;
    box.colors.sort((a, b) => parts(a[0])[box.axis] - parts(b[0])[box.axis]);
    let half = 0, at = 0;
    while (at < box.colors.length - 1 && (half += box.colors[at][1]) < box.count / 2) at += 1;
    const cut = Math.max(1, Math.min(at, box.colors.length - 1));
    boxes.splice(index, 1, measure(box.colors.slice(0, cut)), measure(box.colors.slice(cut)));
  }
  const numbers = new Map();
  const palette = boxes.flatMap((box, number) => {
    // The color that is seen most stands for its group, so that backgrounds stay exactly what they are.
    const [color] = box.colors.reduce((best, each) => (each[1] > best[1] ? each : best));
    for (const [each] of box.colors) numbers.set(each, number);
    return parts(color);
  });
  const indices = Uint8Array.from(pixels, (pixel) => numbers.get(pixel));
  let text = "";
  for (let at = 0; at < indices.length; at += 8192) text += String.fromCharCode(...indices.subarray(at, at + 8192));
  return { width, height, palette, indices: btoa(text) };
}
"""


async def small_png(page: Page, picture: bytes) -> bytes:
    """Return a PNG with at most 256 colors that looks the same; the page of the browser does the counting."""
    reduced = await page.evaluate(_REDUCE, base64.b64encode(picture).decode())
    width, height = reduced["width"], reduced["height"]
    indices = base64.b64decode(reduced["indices"])
    rows = b"".join(b"\x00" + indices[start : start + width] for start in range(0, width * height, width))
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = (
        (b"IHDR", head),
        (b"PLTE", bytes(reduced["palette"])),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    smaller = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return min(smaller, picture, key=len)
