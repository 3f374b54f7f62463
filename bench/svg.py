"""Plots, drawn by hand: bars, and lines over logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from bench.tables import number

WIDTH = 720
_COLORS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#868e96", "#c2255c")
_STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#343a40}.title{font-size:15px;font-weight:600}"
    ".faint{fill:#868e96}.grid{stroke:#dee2e6}.axis{stroke:#adb5bd}"
    "@media(prefers-color-scheme:dark){text{fill:#dee2e6}.faint{fill:#adb5bd}.grid{stroke:#495057}}"
)


def bars(title: str, values: Mapping[str, float], unit: str) -> str:
    """One bar for each name, as long as its value."""
    left, row, top = 190, 30, 44
    height = top + row * len(values) + 12
    longest = max(values.values(), default=1.0) or 1.0
    parts = [_text(12, 24, title, "title")]
    for index, (name, value) in enumerate(values.items()):
        y = top + index * row
        width = max(1.0, value / longest * (WIDTH - left - 150))
        parts.append(_text(left - 8, y + 16, name, anchor="end"))
        parts.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="22" rx="2" fill="{_color_of(name)}"/>')
        parts.append(_text(left + width + 6, y + 16, f"{number(value)} {unit}"))
    return _svg(height, title, parts)


def lines(title: str, series: Mapping[str, Sequence[tuple[float, float]]], x_name: str, y_name: str) -> str:
    """One line for each name. Both axes are logarithmic: a straight level line is what one wants to see."""
    points = [point for line in series.values() for point in line if point[0] > 0 and point[1] > 0]
    if not points:
        return _svg(60, title, [_text(12, 24, title, "title")])
    plot = _Plot([x for x, _ in points], [y for _, y in points])
    parts = [_text(12, 24, title, "title"), *plot.axes(x_name, y_name)]
    labels: list[float] = []
    for index, (name, line) in enumerate(series.items()):
        places = [(plot.x(x), plot.y(y)) for x, y in line if x > 0 and y > 0]
        if not places:
            continue
        color = _COLORS[index % len(_COLORS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.extend(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>' for x, y in places)
        y = _free(places[-1][1] + 4, labels)
        parts.append(f'<text x="{places[-1][0] + 9:.1f}" y="{y:.1f}" style="fill:{color}">{escape(name)}</text>')
    return _svg(_Plot.HEIGHT, title, parts)


class _Plot:
    """Where a value lies in the picture."""

    HEIGHT = 350
    LEFT, RIGHT, TOP, BOTTOM = 70, 170, 62, 46

    def __init__(self, xs: list[float], ys: list[float]) -> None:
        self._x_low, self._x_high = _decades(xs)
        self._y_low, self._y_high = _decades(ys)

    def x(self, value: float) -> float:
        share = (math.log10(value) - self._x_low) / (self._x_high - self._x_low)
        return self.LEFT + share * (WIDTH - self.LEFT - self.RIGHT)

    def y(self, value: float) -> float:
        share = (math.log10(value) - self._y_low) / (self._y_high - self._y_low)
        return self.HEIGHT - self.BOTTOM - share * (self.HEIGHT - self.TOP - self.BOTTOM)

    def axes(self, x_name: str, y_name: str) -> list[str]:
        right, bottom = WIDTH - self.RIGHT, self.HEIGHT - self.BOTTOM
        parts: list[str] = []
        for power in range(self._y_low, self._y_high + 1):
            y = self.y(10**power)
            parts.append(f'<line class="grid" x1="{self.LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
            parts.append(_text(self.LEFT - 8, y + 4, _power(power), "faint", "end"))
        for power in range(self._x_low, self._x_high + 1):
            x = self.x(10**power)
            parts.append(f'<line class="grid" x1="{x:.1f}" y1="{self.TOP}" x2="{x:.1f}" y2="{bottom}"/>')
            parts.append(_text(x, bottom + 18, _power(power), "faint", "middle"))
        parts.append(_text((self.LEFT + right) / 2, self.HEIGHT - 8, x_name, "faint", "middle"))
        parts.append(_text(12, self.TOP - 16, y_name, "faint"))
        return parts


def _decades(values: list[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return (low, high) if high > low else (low, low + 1)


def _power(power: int) -> str:
    return f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"


def _free(y: float, taken: list[float]) -> float:
    """A place for a label that is not on top of another."""
    while any(abs(y - other) < 13 for other in taken):
        y += 14
    taken.append(y)
    return y


def _color_of(name: str) -> str:
    return _COLORS[0] if name.startswith("dragoman") else "#868e96" if name.startswith("floor") else _COLORS[1]


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    marks = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{marks}>{escape(text)}</text>'


def _svg(height: int, title: str, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}"><style>{_STYLE}</style>'
    )
    return "\n".join([head, *parts, "</svg>\n"])
