"""The chat goes on after what it was connected by is gone: a cut connection, a server that was killed."""

from __future__ import annotations

from typing import Any

import pytest
from console.serving import AGENTS, HERE, ServedConsole
from console.talking import field, open_chat, outside_of, say, see_state, turn
from console.watching import Watch
from playwright.async_api import Page, expect
from support.tcp_proxy import TcpProxy

pytestmark = pytest.mark.console

PARLOR = f"{HERE / 'parlor.py'}:server"


async def test_a_stream_goes_on_after_its_connection_was_cut(serve: Any, visit: Any, watch: Watch):
    watch.allow("net::ERR_|status of 401")
    server: ServedConsole = serve(PARLOR)
    async with TcpProxy(server.port) as line:
        address = server.address("#/agents/parlor/chat").replace(f":{server.port}", f":{line.port}")
        page: Page = await visit(address)
        await say(page, "one,")
        await expect(turn(page).get_by_text("one,").last).to_be_visible()
        async with outside_of(page, server, "parlor") as whisper:
            line.cut()
            await whisper(" two,")
            await expect(turn(page).get_by_text("one, two,", exact=True)).to_be_visible()
            line.cut()
            await whisper(" three")
            await whisper("stop")
        answer = await see_state(page)
        await expect(answer.get_by_text("one, two, three", exact=True)).to_be_visible()
        await expect(answer.get_by_role("alert")).to_have_count(0)


async def test_a_task_goes_on_in_the_chat_when_its_server_was_killed_and_comes_back(
    serve: Any, visit: Any, watch: Watch
):
    watch.allow("net::ERR_|status of 401")
    server: ServedConsole = serve(AGENTS)
    page = await open_chat(visit, server, skill="survive")
    await say(page, "go")
    await expect(turn(page).get_by_text("begun in process")).to_be_visible()
    server.kill()
    server.restart()
    answer = await see_state(page)
    await expect(answer.get_by_text("went on after the restart")).to_be_visible()


async def test_a_question_is_answered_after_its_server_was_killed(serve: Any, visit: Any, watch: Watch):
    watch.allow("net::ERR_|status of 401")
    server: ServedConsole = serve(AGENTS)
    page = await open_chat(visit, server, skill="one_question")
    await say(page, "go")
    await see_state(page, "input required")
    server.kill()
    await say(page, "Faro")
    await expect(turn(page).get_by_role("alert")).to_contain_text("cannot be reached")
    server.restart()
    await turn(page).get_by_role("button", name="Try again").click()
    answer = await see_state(page)
    await expect(answer.get_by_text("You said: Faro")).to_be_visible()
    await expect(answer.get_by_role("alert")).to_have_count(0)


async def test_a_message_that_was_never_sent_is_sent_again(serve: Any, visit: Any, watch: Watch):
    watch.allow("net::ERR_|status of 401")
    server: ServedConsole = serve(AGENTS)
    page = await open_chat(visit, server)
    server.kill()
    await say(page, "hello")
    await expect(turn(page).get_by_role("alert")).to_contain_text("cannot be reached")
    server.restart()
    await turn(page).get_by_role("button", name="Try again").click()
    await expect((await see_state(page)).get_by_text("Message 1: hello")).to_be_visible()
    await expect(page.get_by_role("article", name="Turn")).to_have_count(1)
    await expect(field(page)).to_have_value("")
