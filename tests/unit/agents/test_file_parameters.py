"""Files as parameters of skills: what callers may send, which file fills which parameter, and what the card says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from dragoman import Agent, Client, Context, File, State
from dragoman.client.skill_schema import fetch_schemas
from dragoman.errors import ConfigError, ContentTypeNotSupported
from dragoman.testing import served

PNG = File(b"\x89PNG", name="cat.png")
TEXT = File(b"abc", name="a.txt")


def test_a_file_has_its_content_wherever_it_comes_from(tmp_path: Path) -> None:
    assert PNG.save(tmp_path).read_bytes() == PNG.bytes == File(tmp_path / "cat.png").bytes
    with pytest.raises(ValueError, match="not in the message"):
        File(url="https://example.org/x.png").bytes  # noqa: B018 - reading it is what raises


def shown(file: File | None) -> str:
    return "nothing" if file is None else f"{file.name} {file.media_type} {file.url or repr(file.data)}"


def gallery() -> Agent:
    agent = Agent("gallery")

    @agent.skill
    def show(photo: Annotated[File, "the picture to show", "image/png", "image/jpeg"], title: str = "-") -> str:
        """Show a picture."""
        return f"{title}: {shown(photo)}"

    @agent.skill
    def count(files: list[File], by: int = 1) -> int:
        return len(files) * by

    @agent.skill
    def compare(before: File, after: File, extra: File | None = None) -> str:
        return " | ".join(map(shown, (before, after, extra)))

    @agent.skill
    async def label(ctx: Context, photo: File) -> str:
        answer = await ctx.ask("Which label?")
        return f"{answer}: {shown(photo)}, {len(ctx.files)} in the message"

    return agent


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(gallery()) as client:
        yield client


# -- what callers send -------------------------------------------------------------------------------------------------


async def test_a_file_is_an_argument_like_any_other(client: Client, tmp_path: Path) -> None:
    assert await client.call("show", photo=PNG, title="Cat") == "Cat: cat.png image/png b'\\x89PNG'"
    (tmp_path / "dog.png").write_bytes(b"\x89PNG")
    assert await client.call("show", photo=File(tmp_path / "dog.png")) == "-: dog.png image/png b'\\x89PNG'"
    link = File(url="https://example.org/x.png")
    assert await client.call("show", photo=link) == "-: file image/png https://example.org/x.png"
    assert await client.call("count", files=[PNG, PNG, TEXT], by=2) == 6
    assert await client.call("count", files=[]) == 0


async def test_files_of_the_same_name_get_different_names(client: Client) -> None:
    other = File(b"other", name="cat.png")
    answer = await client.call("compare", before=PNG, after=other)
    assert answer == "cat.png image/png b'\\x89PNG' | 2-cat.png image/png b'other' | nothing"


async def test_files_without_arguments_go_by_name_and_then_in_order(client: Client) -> None:
    files = [TEXT, PNG, File(b"1", name="before.txt")]
    answer = await client.send(tool="compare", files=files)
    assert answer.text == "before.txt text/plain b'1' | a.txt text/plain b'abc' | cat.png image/png b'\\x89PNG'"
    assert (await client.send("Cat", tool="show", files=[PNG])).text == "Cat: cat.png image/png b'\\x89PNG'"
    assert (await client.send(tool="count", files=[PNG, TEXT])).text == "2"


async def test_an_argument_may_be_a_name_a_link_or_a_data_uri(client: Client) -> None:
    answer = await client.send(
        tool="compare",
        arguments={"before": "a.txt", "after": "data:image/png;name=my%20cat.png;base64,iVBORw=="},
        files=[PNG, TEXT],
    )
    assert answer.text == ("a.txt text/plain b'abc' | my cat.png image/png b'\\x89PNG' | cat.png image/png b'\\x89PNG'")
    assert await client.call("show", photo="https://example.org/x.png") == "-: None image/png https://example.org/x.png"


@pytest.mark.parametrize(
    "options", [{}, {"protocol": "0.3"}, {"transport": "rest"}, {"protocol": "0.1"}, {"transport": "grpc"}]
)
async def test_it_works_in_every_version_and_binding(options: dict[str, Any]) -> None:
    with served(gallery(), grpc="127.0.0.1:0") as url:
        async with Client(url, **options) as client:
            assert await client.call("show", photo=PNG) == "-: cat.png image/png b'\\x89PNG'"
            assert str(await client.call("count", files=[PNG, TEXT])) == "2"


# -- what is missing or wrong ------------------------------------------------------------------------------------------


async def test_a_missing_file_is_asked_for_by_name_and_the_answer_may_be_one(client: Client) -> None:
    asked = await client.send(tool="show")
    assert asked.question == "`show` needs `photo` (a file): the picture to show."
    done = await client.send(task=asked, files=[PNG])
    assert (done.state, done.text) == (State.COMPLETED, "-: cat.png image/png b'\\x89PNG'")


async def test_a_name_that_is_no_file_of_the_message_is_asked_for_again(client: Client) -> None:
    asked = await client.send(tool="show", arguments={"photo": "dog.png"}, files=[PNG])
    assert asked.question is not None
    assert asked.question.endswith("There is no file `dog.png` in the message.")


async def test_after_a_question_the_skill_sees_the_same_file(client: Client) -> None:
    asked = await client.send(tool="label", arguments={"photo": "cat.png"}, files=[TEXT, PNG])
    assert asked.question == "Which label?"
    done = await client.send("tabby", task=asked, files=[File(b"no", name="cat.png")])
    assert done.text == "tabby: cat.png image/png b'\\x89PNG', 2 in the message"


async def test_another_media_type_is_an_error_that_names_the_parameter(client: Client) -> None:
    with pytest.raises(ContentTypeNotSupported) as refused:
        await client.call("show", photo=TEXT)
    assert str(refused.value) == "`photo` takes image/png or image/jpeg, not text/plain"
    assert refused.value.metadata["field"] == "photo"


def test_a_file_within_another_type_is_refused_with_what_to_write() -> None:
    def bad(files: dict[str, File]) -> str:
        return ""

    with pytest.raises(ConfigError) as refused:
        Agent("x").skill(bad)
    assert str(refused.value).endswith("write `files: File`, `files: list[File]` or `files: File | None = None`")


# -- what the card says ------------------------------------------------------------------------------------------------


async def test_the_card_and_the_schema_say_what_is_taken(client: Client) -> None:
    skills = {skill.id: skill for skill in (await client.card()).skills}
    assert skills["show"].input_modes == ("text/plain", "application/json", "image/png", "image/jpeg")
    assert skills["count"].input_modes == ("text/plain", "application/json", "application/octet-stream")
    schemas = await fetch_schemas(client)
    assert schemas["show"]["inputSchema"]["properties"]["photo"] == {
        "type": "string",
        "format": "file",
        "mediaTypes": ["image/png", "image/jpeg"],
        "description": "the picture to show",
    }
    files = schemas["count"]["inputSchema"]["properties"]["files"]
    assert (files["type"], files["items"]) == ("array", {"type": "string", "format": "file"})
