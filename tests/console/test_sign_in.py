"""Who looks at the console: users who sign in, operators who have the token, visitors, and servers that start again."""

from __future__ import annotations

from typing import Any

import pytest
from console.browser import PHONE
from console.driving import axe, press, sidebar, sideways
from console.serving import GUARDED, ServedConsole
from console.watching import Watch
from playwright.async_api import Locator, Page, expect

from dragoman import Client

PASSWORD = "correct horse battery"


def banner(page: Page) -> Locator:
    return page.get_by_role("banner")


def add_user(server: ServedConsole, name: str, *permissions: str) -> None:
    words = [word for each in permissions for word in ("--permission", each)]
    server.users("add", name, "--password-stdin", *words, typed=f"{PASSWORD}\n")


async def sign_in(page: Page, name: str, password: str = PASSWORD) -> None:
    """Fill in the page for sign-in, and send it."""
    await page.get_by_label("Name").fill(name)
    await page.get_by_label("Password").fill(password)
    # Passwords take long to check, by design, and longer on a busy machine.
    async with page.expect_response(lambda response: response.request.method == "POST", timeout=30_000):
        await press(page, "Enter")


async def run_whoami(page: Page) -> Locator:
    """Run the skill that says who calls, in its own place; return its result."""
    await page.evaluate("() => { location.hash = '#/agents/vault/skills/whoami' }")
    await page.get_by_role("button", name="Run").click()
    return page.get_by_role("region", name="Result")


# -- the main way ------------------------------------------------------------------------------------------------------


async def test_a_user_signs_in_is_known_to_the_agent_and_signs_out(visit: Any, watch: Watch, serve: Any):
    watch.allow("status of 401")
    server = serve(GUARDED, "--auth", "cookie")
    add_user(server, "ann", "vault")
    page = await visit(f"{server.url}/#/tasks")
    await expect(page.get_by_role("heading", name="Tasks need a key")).to_be_visible()
    await banner(page).get_by_role("link", name="Sign in").click()
    await sign_in(page, "ann")
    await expect(page).to_have_url(f"{server.url}/#/tasks")
    await expect(banner(page)).to_contain_text("Signed in as ann")
    await expect(page.get_by_role("heading", name="Tasks", level=1)).to_be_visible()

    await sidebar(page).get_by_role("link", name="vault").click()
    await expect(page.get_by_text("This agent knows you by your sign-in.")).to_be_visible()
    await expect(page.get_by_role("article", name="Skill open_vault")).to_be_visible()
    await expect(page.get_by_role("article", name="Skill empty_vault")).to_have_count(0)
    await expect((await run_whoami(page)).get_by_text("You are ann.")).to_be_visible()
    await sidebar(page).get_by_role("link", name="Server", exact=True).click()
    await expect(page.get_by_role("heading", name="Figures of the server need a key")).to_be_visible()

    await banner(page).get_by_role("button", name="Sign out").click()
    await expect(banner(page).get_by_role("link", name="Sign in")).to_be_visible()
    await expect((await run_whoami(page)).get_by_role("alert")).to_be_visible()
    await sidebar(page).get_by_role("link", name="vault").click()
    await expect(page.get_by_role("article", name="Skill whoami")).to_be_visible()
    await expect(page.get_by_role("article", name="Skill open_vault")).to_have_count(0)
    assert "You are ann." not in await page.content()


# -- users -------------------------------------------------------------------------------------------------------------


@pytest.mark.console
async def test_the_permission_admin_shows_the_server_and_the_tasks_of_all(visit: Any, watch: Watch, serve: Any):
    watch.allow("status of 401")
    server = serve(GUARDED, "--auth", "cookie", "--auth", "bearer")
    for name, permissions in {"ann": ("admin",), "bob": (), "eve": ()}.items():
        add_user(server, name, *permissions)
    for name in ("bob", "eve"):
        async with Client(f"{server.url}/agents/vault", auth=server.users("key", name)) as client:
            await client.send("hello")
    page = await visit(f"{server.url}/login?next=/%23/server")
    await sign_in(page, "ann")
    await expect(banner(page)).to_contain_text("Signed in as ann (admin)")
    await expect(page.get_by_role("heading", name="Server", level=1)).to_be_visible()
    await sidebar(page).get_by_role("link", name="Tasks").click()
    await expect(page.get_by_role("main").get_by_text("bob", exact=True).first).to_be_visible()
    await expect(page.get_by_role("main").get_by_text("eve", exact=True).first).to_be_visible()

    page = await visit(f"{server.url}/login?next=/%23/tasks")
    await sign_in(page, "bob")
    await expect(banner(page)).to_contain_text("Signed in as bob")
    await expect(banner(page)).not_to_contain_text("admin")
    await expect(page.get_by_role("main").get_by_text("whoami").or_(page.get_by_text("hello")).first).to_be_visible()
    await expect(page.get_by_role("main").get_by_text("eve", exact=True)).to_have_count(0)


@pytest.mark.console
async def test_where_sign_in_decides_there_is_no_token(visit: Any, watch: Watch, serve: Any):
    watch.allow("status of 40[13]")
    server = serve(GUARDED, "--auth", "cookie", "--console", "auth")
    assert not server.has_token
    add_user(server, "ann", "admin")
    page = await visit(f"{server.url}/?token=anything")
    await sidebar(page).get_by_role("link", name="Server", exact=True).click()
    await expect(page.get_by_text("Sign in to see them.")).to_be_visible()
    assert await axe(page) == []
    await page.get_by_role("main").get_by_role("link", name="Sign in").click()
    await sign_in(page, "ann")
    await expect(page).to_have_url(f"{server.url}/#/server")
    await expect(page.get_by_role("heading", name="Server", level=1)).to_be_visible()


@pytest.mark.console
async def test_revoking_a_user_signs_them_out_of_the_console(visit: Any, watch: Watch, serve: Any):
    watch.allow("status of 401")
    server = serve(GUARDED, "--auth", "cookie", "--console", "auth")
    add_user(server, "ann", "admin")
    page = await visit(f"{server.url}/login?next=/%23/server")
    await sign_in(page, "ann")
    await expect(page.get_by_role("heading", name="Server", level=1)).to_be_visible()
    server.users("revoke", "ann")
    await expect(page.get_by_role("heading", name="Figures of the server need a key")).to_be_visible(timeout=20_000)
    await expect(banner(page).get_by_role("link", name="Sign in")).to_be_visible()


@pytest.mark.console
async def test_the_dialog_for_credentials_leads_to_the_sign_in_and_back(visit: Any, watch: Watch, serve: Any):
    watch.allow("status of 401")
    server = serve(GUARDED, "--auth", "cookie")
    add_user(server, "ann")
    page = await visit(server.address("#/agents/vault/skills/whoami"))
    await expect(banner(page)).to_contain_text("Signed in as operator")
    await page.get_by_role("button", name="Enter credentials").click()
    await page.get_by_role("dialog").get_by_role("link", name="Sign in").click()
    await sign_in(page, "ann")
    await expect(page).to_have_url(f"{server.url}/#/agents/vault/skills/whoami")
    await expect((await run_whoami(page)).get_by_text("You are ann.")).to_be_visible()
    await expect(banner(page)).to_contain_text("Signed in as ann (admin)")
    await sidebar(page).get_by_role("link", name="Server", exact=True).click()
    await expect(page.get_by_role("heading", name="Server", level=1)).to_be_visible()


@pytest.mark.console
async def test_signing_in_works_on_a_phone_and_with_keys_alone(visit: Any, watch: Watch, serve: Any):
    watch.allow("status of 401")
    server = serve(GUARDED, "--auth", "cookie")
    add_user(server, "ann", "admin")
    page = await visit(f"{server.url}/#/agents/vault", view=PHONE)
    await expect(page.get_by_role("heading", name="vault")).to_be_visible()
    assert await sideways(page) == []
    await banner(page).get_by_role("link", name="Sign in").focus()
    await press(page, "Enter")
    await expect(page.get_by_label("Name")).to_be_focused()
    assert await sideways(page) == []
    await sign_in(page, "ann", "not the password")
    await expect(page.get_by_role("alert")).to_be_visible()
    await expect(page.get_by_label("Name")).to_be_focused()
    await page.keyboard.type("ann")
    await press(page, "Tab")
    await page.keyboard.type(PASSWORD)
    async with page.expect_response(lambda response: response.request.method == "POST", timeout=30_000):
        await press(page, "Enter")
    await expect(banner(page)).to_contain_text("ann")
    assert await sideways(page) == []
    assert await axe(page) == []
    await banner(page).get_by_role("button", name="Sign out").focus()
    await press(page, "Enter")
    await expect(banner(page).get_by_role("link", name="Sign in")).to_be_visible()


# -- the token ---------------------------------------------------------------------------------------------------------


@pytest.mark.console
async def test_an_operator_who_signs_out_is_a_visitor(visit: Any, watch: Watch, studio: ServedConsole):
    watch.allow("status of 401")
    page = await visit(studio.address("#/server"))
    await expect(page.get_by_role("heading", name="Server", level=1)).to_be_visible()
    await banner(page).get_by_role("button", name="Sign out").click()
    await expect(banner(page)).to_contain_text("visitor")
    await page.goto(f"{studio.url}/#/server")
    await expect(page.get_by_role("heading", name="Figures of the server need a key")).to_be_visible()
    await page.reload()
    await expect(banner(page)).to_contain_text("visitor")


@pytest.mark.console
async def test_signing_out_clears_the_page(visit: Any, watch: Watch, studio: ServedConsole):
    watch.allow("status of 401")
    page = await visit(studio.address("#/agents/studio/chat"))
    await page.get_by_role("textbox", name="Message").fill("my secret plan")
    await press(page, "Enter")
    await expect(page.get_by_role("log").get_by_text("Message 1:")).to_be_visible()
    await banner(page).get_by_role("button", name="Sign out").click()
    await expect(banner(page)).to_contain_text("visitor")
    await expect(page).to_have_url(f"{studio.url}/")
    for place, title in {"agents/studio/chat": "Chat with studio", "wire": "Wire", "agents/studio": "studio"}.items():
        await page.evaluate("(place) => { location.hash = `#/${place}` }", place)
        await expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()
        assert "secret plan" not in await page.content()
    assert "secret plan" not in await page.evaluate("() => JSON.stringify({ ...localStorage })")


@pytest.mark.console
async def test_a_wrong_token_says_how_to_get_the_right_one_and_the_agents_can_still_be_used(
    visit: Any, watch: Watch, studio: ServedConsole
):
    watch.allow("status of 403")
    page = await visit(f"{studio.url}/?token=wrong#/agents/library")
    alert = page.get_by_role("alert")
    await expect(alert).to_contain_text("This token is not valid")
    await expect(alert).to_contain_text("dragoman open")
    assert "wrong" not in page.url
    assert await axe(page) == []
    await alert.get_by_role("button", name="Dismiss").click()
    await expect(alert).to_have_count(0)
    await page.get_by_role("button", name="Try find").click()
    await page.get_by_role("textbox", name="text").fill("cities")
    await press(page, "Enter")
    await expect(page.get_by_role("region", name="Result").get_by_text("Invisible Cities")).to_be_visible()
    await expect(page.get_by_role("region", name="Result").get_by_role("link", name="Task", exact=True)).to_have_count(
        0
    )
