"""`dragoman call` on an agent that tells the types of its skills."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from mcp.server import MCPServer
from mcp_types import CallToolResult, TextContent

from dragoman import Agent, File
from dragoman.testing import served

from .conftest import Run


@pytest.fixture(scope="module")
def tools() -> Iterator[str]:
    server = MCPServer("tools", log_level="ERROR")

    @server.tool()
    def show(
        n: int = 0,
        x: float | None = None,
        ok: bool = False,
        words: list[str] | None = None,
        box: dict[str, Any] | None = None,
        unit: Literal["km", "mi"] = "km",
        text: str = "",
    ) -> dict[str, Any]:
        """Return the arguments."""
        return {"n": n, "x": x, "ok": ok, "words": words, "box": box, "unit": unit, "text": text}

    @server.tool()
    def weather(city: str) -> CallToolResult:
        """Tell the weather as data, and in words."""
        words = TextContent(type="text", text=f"It is 22 degrees in {city}")
        return CallToolResult(content=[words], structured_content={"degrees": 22})

    with served(Agent.from_mcp(server)) as url:
        yield url


def test_words_are_read_by_the_types_of_the_skill(run: Run, tools: str) -> None:
    typed = ("n=3", "x=2.5", "ok=true", 'words=["a", "b"]', 'box={"a": 1}', "unit=mi", "text=3")
    done = run("call", tools, "show", *typed)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {
        **{"n": 3, "x": 2.5, "ok": True, "words": ["a", "b"], "box": {"a": 1}},
        **{"unit": "mi", "text": "3"},
    }


def test_a_json_argument_is_passed_unchanged(run: Run, tools: str) -> None:
    done = run("call", tools, "show", "n:=3", 'text:="3"', "--wire")
    assert json.loads(done.stdout)["n"] == 3
    assert json.loads(done.stdout)["text"] == "3"


def test_an_agent_that_is_not_there_is_the_usual_error(run: Run) -> None:
    done, other = (run("call", "http://127.0.0.1:9", "show", message) for message in ("n=3", "n:=3"))
    assert (done.returncode, done.stdout, done.stderr) == (3, "", other.stderr)
    assert done.stderr.startswith("dragoman: ")


def test_an_answer_that_comes_as_data_and_in_words_is_printed_once(run: Run, tools: str) -> None:
    done = run("call", tools, "weather", "city=Faro")
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, {"degrees": 22}, "")


# -- values that do not fit -------------------------------------------------------------------------------------------


@dataclass
class Stay:
    city: str
    nights: int = 1


@pytest.fixture(scope="module")
def trips() -> Iterator[str]:
    agent = Agent("trips")

    @agent.skill
    def book(
        stay: Stay,
        guests: Annotated[int, msgspec.Meta(ge=1)] = 1,
        kind: Literal["hotel", "hostel"] = "hotel",
        price: Decimal = Decimal(0),
        tags: list[str] | None = None,
    ) -> str:
        """Book a stay.

        Args:
            stay: where and how long
        """
        return f"{stay.nights} nights in {stay.city} for {guests}, {kind}, {price}, {tags}"

    with served(agent) as url:
        yield url


STAY = 'stay:={"city": "Faro"}'


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ([STAY, "guests=many"], '`guests` must be an integer, not "many"'),
        ([STAY, "guests:=[1]"], "`guests` must be an integer, not [1]"),
        ([STAY, "guests=0"], "`guests` must be at least 1, not 0"),
        ([STAY, "kind=castle"], '`kind` must be one of "hotel", "hostel", not "castle"'),
        ([STAY, "tags:=[1]"], "`tags[0]` must be a string, not 1"),
        (["stay=Faro"], '`stay` must be an object, not "Faro"'),
        (['stay:={"nights": 2}'], "`stay.city` is missing"),
        (['stay:={"city": "Faro", "nights": "two"}'], '`stay.nights` must be an integer, not "two"'),
    ],
)
def test_a_wrong_value_is_an_error_before_anything_is_sent(run: Run, trips: str, typed: list[str], says: str) -> None:
    done = run("call", trips, "book", *typed)
    expected = f"dragoman: `book`: {says}. `dragoman card {trips}` lists its arguments\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)
    assert run("tasks", trips, "--state", "input-required").stdout == ""


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["guests=2", "price=1.50"], "1 nights in Faro for 2, hotel, 1.50, None\n"),
        (['guests:="2"', "price:=1.5", "kind=hostel"], "1 nights in Faro for 2, hostel, 1.5, None\n"),
        (["guests:=2.0", 'tags:=["a"]'], "1 nights in Faro for 2, hotel, 0, ['a']\n"),
        (["tags:=null"], "1 nights in Faro for 1, hotel, 0, None\n"),
    ],
)
def test_values_that_the_agent_takes_pass(run: Run, trips: str, typed: list[str], answer: str) -> None:
    done = run("call", trips, "book", STAY, *typed)
    assert (done.returncode, done.stdout, done.stderr) == (0, answer, "")


def test_the_card_lists_the_arguments_of_skills(run: Run, trips: str) -> None:
    lines = run("card", trips).stdout.splitlines()
    assert "      stay (object): where and how long" in lines
    assert "      guests (integer, optional)" in lines
    assert '      kind (one of "hotel", "hostel", optional)' in lines


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gallery() -> Iterator[str]:
    agent = Agent("gallery")

    @agent.skill
    def show(photo: Annotated[File, "image/*"], title: str = "-") -> str:
        return f"{title}: {photo.name} {photo.media_type} {photo.data!r}"

    @agent.skill
    def join(files: list[File]) -> str:
        return ", ".join(str(file.name) for file in files)

    with served(agent) as url:
        yield url


def test_a_file_is_passed_by_the_name_of_its_argument(run: Run, gallery: str, tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(b"meow")
    (tmp_path / "a.txt").write_text("a")
    done = run("call", gallery, "show", "title=Cat", "--file", "photo=cat.png")
    assert (done.returncode, done.stdout) == (0, "Cat: cat.png image/png b'meow'\n")
    assert run("call", gallery, "join", "--file", "files=cat.png").stdout == "cat.png\n"
    assert run("call", gallery, "join", "--file", "files=cat.png", "--file", "files=a.txt").stdout == "cat.png, a.txt\n"
    wrong = run("call", gallery, "show", "--file", "photo=a.txt")
    assert (wrong.returncode, wrong.stderr) == (1, "dragoman: `photo` takes image/*, not text/plain\n")


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("cat.png", "--file cat.png: write the argument and the path, as in --file photo=cat.png"),
        ("photo=nothere.png", "--file photo: there is no file nothere.png"),
    ],
)
def test_a_wrong_file_is_an_error_before_anything_is_sent(
    run: Run, gallery: str, tmp_path: Path, typed: str, says: str
) -> None:
    (tmp_path / "cat.png").write_bytes(b"meow")
    done = run("call", gallery, "show", "--file", typed)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"dragoman: {says}\n")


def test_a_name_where_a_file_is_wanted_is_an_error_before_anything_is_sent(run: Run, gallery: str) -> None:
    done = run("call", gallery, "show", "photo=cat.png")
    says = "dragoman: `show`: `photo` is a file: pass it with --file photo=PATH\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", says)
    assert run("tasks", gallery, "--state", "input_required").stdout == ""
    assert "photo (file)" in run("card", gallery).stdout
