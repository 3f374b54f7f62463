"""Agents for the forms of the console: `bench` takes a value of every kind, `careless` has a card with problems.

dragoman serve tests/console/workshop.py:server
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from dragoman import Agent, File, Server

bench = Agent("bench", description="Takes a value of every kind.", version="1.0.0")


class Color(Enum):
    """What it is painted with."""

    RED = "red"
    GREEN = "green"
    BLUE = "blue"


class Circle(msgspec.Struct, tag="circle"):
    """A round shape."""

    radius: float


class Box(msgspec.Struct, tag="box"):
    """A shape with corners."""

    width: int
    height: int = 1


@dataclass
class Corner:
    """Where two edges meet."""

    x: int
    y: int


@dataclass
class Drawing:
    """A drawing of corners."""

    name: str
    corners: list[Corner]


@bench.skill(tags=["form"])
def paint(
    title: Annotated[str, "how it is **called**"],
    amount: Annotated[int, msgspec.Meta(ge=1, le=20)],
    color: Color,
    finish: Literal["matte", "satin", "glossy"],
    coats: Literal[1, 2, 3] = 2,
    ratio: float = 0.5,
    dry: bool = False,
    careful: bool | None = None,
    code: Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")] = "ABC",
) -> dict[str, Any]:
    """Paint something.

    Args:
        amount: liters, whole ones
        ratio: of water
    """
    return {
        "title": title,
        "amount": amount,
        "color": color.name,
        "finish": finish,
        "coats": coats,
        "ratio": ratio,
        "dry": dry,
        "careful": careful,
        "code": code,
    }


@bench.skill(tags=["form"])
def build(
    drawing: Drawing,
    shape: Circle | Box,
    size: int | str = 1,
    labels: list[str] | None = None,
    seats: dict[str, int] | None = None,
    pair: tuple[int, str] | None = None,
) -> dict[str, Any]:
    """Build something out of nested values."""
    return {
        "drawing": [drawing.name, [[corner.x, corner.y] for corner in drawing.corners]],
        "shape": msgspec.to_builtins(shape),
        "size": size,
        "labels": labels,
        "seats": seats,
        "pair": pair and list(pair),
    }


@bench.skill(tags=["form"])
def keep(
    content: bytes,
    day: date | None = None,
    at: time | None = None,
    moment: Annotated[datetime, msgspec.Meta(tz=True)] | None = None,
    number: UUID | None = None,
    more: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Keep a file with its dates."""
    return {
        "content": content.decode(),
        "day": day and day.isoformat(),
        "at": at and at.isoformat(),
        "moment": moment and moment.isoformat(),
        "number": number and str(number),
        "more": more,
    }


@bench.skill(tags=["form"])
def frame(photo: Annotated[File, "image/*", "the picture"], more: list[File] | None = None) -> dict[str, Any]:
    """Frame a picture."""
    files = [photo, *(more or ())]
    return {"files": [[file.name, file.media_type, len(file.bytes)] for file in files]}


careless = Agent(
    "careless", description="Its card breaks rules.", card={"documentationUrl": "nowhere", "iconUrl": "icon.png"}
)


@careless.skill(default=True)
def shrug(text: str) -> str:
    """Take a text."""
    return text


server = Server(bench, careless)
