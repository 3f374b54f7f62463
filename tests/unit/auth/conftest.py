"""A real agent and a real issuer of tokens, on loopback."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import unquote_plus

import pytest
from aiohttp import web
from support.web_app import serving

from dragoman.auth.outbound.choose import credential_of
from dragoman.dialects.cards.card import read_card
from dragoman.model.card import AgentCard
from dragoman.net.aio import AioClient
from dragoman.net.exchange import HttpRequest

CLIENT = "the client"
# With characters that a form and a header spell differently.
CLIENT_SECRET = "s3cr3t:+/%&ü"


class Site:
    """One origin: an agent at /agent, which keeps what arrived, and an issuer at /token, /refresh and /device."""

    def __init__(self) -> None:
        self.url = ""
        self.arrived: list[web.Request] = []
        self.forms: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.accepts = {"basic", "body"}
        self.life: Any = 3600
        self.gives_refresh = False
        self.refresh_works = True
        # Answers that come before the ordinary ones: (status, body), the body as JSON or as it is.
        self.script: list[tuple[int, Any]] = []
        self.headers: dict[str, str] = {}
        self.device: dict[str, Any] = {
            "device_code": "dev1ce-c0de",
            "user_code": "ABCD-EFGH",
            "verification_uri": "https://issuer.example/device",
            "expires_in": 600,
        }
        self.reached = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.given = 0

    async def agent(self, request: web.Request) -> web.Response:
        self.arrived.append(request)
        return web.json_response({})

    async def token(self, request: web.Request) -> web.Response:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.forms.append({**form, "authorization": request.headers.get("Authorization", "")})
        self.paths.append(request.path)
        self.reached.set()
        await self.gate.wait()
        if self.script:
            status, body = self.script.pop(0)
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
            return web.Response(status=status, body=raw, headers=self.headers)
        if form["grant_type"] == "client_credentials" and not self._knows(form, request):
            return web.json_response({"error": "invalid_client"}, status=401)
        if form["grant_type"] == "refresh_token" and not self.refresh_works:
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.given += 1
        answer: dict[str, Any] = {"access_token": f"t0ken-{self.given}", "token_type": "Bearer"}
        if self.life is not None:
            answer["expires_in"] = self.life
        if self.gives_refresh:
            answer["refresh_token"] = f"r3fresh-{self.given}"
        return web.json_response(answer)

    async def code(self, request: web.Request) -> web.Response:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.forms.append(form)
        self.paths.append(request.path)
        return web.json_response(self.device, status=400 if "error" in self.device else 200)

    def _knows(self, form: dict[str, str], request: web.Request) -> bool:
        header = request.headers.get("Authorization", "")
        if header.startswith("Basic ") and "basic" in self.accepts:
            user, _, password = b64decode(header[6:]).decode().partition(":")
            return (unquote_plus(user), unquote_plus(password)) == (CLIENT, CLIENT_SECRET)
        if "body" in self.accepts:
            return (form.get("client_id"), form.get("client_secret")) == (CLIENT, CLIENT_SECRET)
        return False


class Call:
    """Sends a request with a credential to a site's agent, as a client does, and tells what arrived."""

    def __init__(self, site: Site, http: AioClient) -> None:
        self.site = site
        self.http = http

    async def __call__(
        self,
        auth: object,
        card: AgentCard | None = None,
        *,
        headers: dict[str, str] | None = None,
        path: str = "/agent",
    ) -> web.Request:
        request = HttpRequest("POST", self.site.url + path, dict(headers or {}), b"{}")
        credential = credential_of(auth)
        if credential is not None:
            await credential.apply(request, card, self.http)
        response = await self.http.send(request)
        await response.read()
        return self.site.arrived[-1]


class Time:
    """Passes when somebody waits for it, or when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def http() -> AsyncIterator[AioClient]:
    client = AioClient()
    yield client
    await client.close()


@pytest.fixture
async def open_site() -> AsyncIterator[Callable[[], Any]]:
    async with AsyncExitStack() as stack:

        async def opened() -> Site:
            site = Site()
            routes = {"/agent": site.agent, "/token": site.token, "/refresh": site.token, "/device": site.code}
            site.url = await stack.enter_async_context(serving(web.post(*route) for route in routes.items()))
            return site

        yield opened


@pytest.fixture
async def site(open_site: Callable[[], Any]) -> Site:
    return await open_site()


@pytest.fixture
def call(site: Site, http: AioClient) -> Call:
    return Call(site, http)


@pytest.fixture
def card() -> Callable[..., AgentCard]:
    """A card with schemes and alternatives: `card({"k": {...}}, ["k"], ["a", "b"])`. Scopes: `{"k": ["s"]}`."""

    def made(schemes: dict[str, Any], *demanded: list[str] | dict[str, list[str]]) -> AgentCard:
        return read_card(
            {
                "name": "a",
                "description": "",
                "version": "1",
                "supportedInterfaces": [{"url": "/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
                "capabilities": {},
                "skills": [],
                "securitySchemes": schemes,
                "securityRequirements": [
                    {"schemes": {name: {"list": each[name]} if isinstance(each, dict) else {} for name in each}}
                    for each in demanded
                ],
            }
        )

    return made
