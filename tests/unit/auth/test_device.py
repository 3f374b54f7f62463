"""Device codes against a real issuer, in a time of our own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dragoman.auth import DeviceCode
from dragoman.model.error import AuthError, ConfigError

PENDING = (400, {"error": "authorization_pending"})
SLOWER = (400, {"error": "slow_down"})


def bearer(request: Any) -> str:
    return request.headers["Authorization"].removeprefix("Bearer ")


def scheme(**flow: Any) -> dict[str, Any]:
    fields = {"deviceAuthorizationUrl": "/device", "tokenUrl": "/token", "scopes": {"all": "All"}, **flow}
    return {"oauth2SecurityScheme": {"flows": {"deviceCode": fields}}}


@pytest.fixture
def prompts() -> list[Any]:
    return []


@pytest.fixture
def device(time: Any, prompts: list[Any]) -> DeviceCode:
    return DeviceCode("me", prompt=lambda *words: prompts.append(words), _now=time, _pause=time.pause)


@pytest.fixture
def theirs(card: Any) -> Any:
    return card({"d": scheme()}, ["d"])


async def test_the_user_is_prompted_and_the_token_is_polled_for(
    device: Any, call: Any, site: Any, theirs: Any, prompts: Any, time: Any
):
    site.script = [PENDING, PENDING]
    assert bearer(await call(device, theirs)) == "t0ken-1"
    assert prompts == [("https://issuer.example/device", "ABCD-EFGH", None)]
    assert time.pauses == [5, 5, 5]
    assert site.paths == ["/device", "/token", "/token", "/token"]
    assert site.forms[0] == {"client_id": "me", "scope": "all"}
    assert site.forms[1] == {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": "dev1ce-c0de",
        "client_id": "me",
        "authorization": "",
    }


@pytest.mark.parametrize(
    ("interval", "script", "pauses"),
    [
        (2, [PENDING, SLOWER, PENDING, (429, b""), PENDING], [2, 2, 7, 7, 12, 12]),
        (5, [(503, b"busy"), (502, b""), PENDING], [5, 10, 20, 20]),
    ],
    ids=["asked to slow down", "in trouble"],
)
async def test_the_interval_is_the_issuers_and_grows_when_it_asks_for_that_or_is_in_trouble(
    interval: int, script: list[Any], pauses: list[int], device: Any, call: Any, site: Any, theirs: Any, time: Any
):
    site.device["interval"] = interval
    site.script = [*script]
    assert bearer(await call(device, theirs)) == "t0ken-1"
    assert time.pauses == pauses


async def test_a_connection_that_fails_while_waiting_does_not_end_the_wait(
    device: Any, call: Any, theirs: Any, time: Any
):
    class Flaky:
        """Cuts the first connection after the code was given."""

        def __init__(self, inner: Any) -> None:
            self.inner, self.cuts = inner, 1

        async def send(self, request: Any) -> Any:
            if request.url.endswith("/token") and self.cuts:
                self.cuts -= 1
                request.url = "http://127.0.0.1:9/"
            return await self.inner.send(request)

    call.http = Flaky(call.http)
    assert bearer(await call(device, theirs)) == "t0ken-1"
    assert time.pauses == [5, 10]


@pytest.mark.parametrize(("error", "text"), [("access_denied", "not allowed"), ("expired_token", "expired")])
async def test_a_refusal_ends_the_wait(error: str, text: str, device: Any, call: Any, site: Any, theirs: Any):
    site.script = [PENDING, (400, {"error": error})]
    with pytest.raises(AuthError, match=text):
        await call(device, theirs)
    assert site.arrived == []


async def test_another_error_ends_the_wait_with_its_words(device: Any, call: Any, site: Any, theirs: Any):
    site.script = [(400, {"error": "invalid_grant", "error_description": "what is dev1ce-c0de?"})]
    with pytest.raises(AuthError, match=r"invalid_grant: what is \*\*\*\?"):
        await call(device, theirs)


async def test_nobody_waits_longer_than_the_code_lives(device: Any, call: Any, site: Any, theirs: Any, time: Any):
    site.device["expires_in"] = 12
    site.script = [PENDING] * 100
    with pytest.raises(AuthError, match="in time"):
        await call(device, theirs)
    assert time.pauses == [5, 5, 2]
    assert len(site.script) == 98


async def test_nobody_waits_for_ever_when_the_issuer_talks_nonsense(
    device: Any, call: Any, site: Any, theirs: Any, time: Any
):
    site.device |= {"expires_in": 1e300, "interval": 1e300}
    with pytest.raises(AuthError, match="in time"):
        await call(device, theirs)
    assert sum(time.pauses) == 1800


async def test_the_refresh_token_is_used_afterwards(
    device: Any, call: Any, site: Any, theirs: Any, prompts: Any, time: Any
):
    site.gives_refresh = True
    assert bearer(await call(device, theirs)) == "t0ken-1"
    time.now += 4000
    assert bearer(await call(device, theirs)) == "t0ken-2"
    assert site.forms[-1] == {
        "grant_type": "refresh_token",
        "refresh_token": "r3fresh-1",
        "client_id": "me",
        "authorization": "",
    }
    assert device.reject()
    assert bearer(await call(device, theirs)) == "t0ken-3"
    assert len(prompts) == 1


async def test_when_the_refresh_token_is_refused_the_person_is_asked_again(
    device: Any, call: Any, site: Any, theirs: Any, prompts: Any
):
    site.gives_refresh, site.refresh_works = True, False
    await call(device, theirs)
    assert device.reject()
    assert bearer(await call(device, theirs)) == "t0ken-2"
    assert len(prompts) == 2


async def test_without_a_refresh_token_a_rejection_is_not_tried_again_at_once(
    device: Any, call: Any, theirs: Any, prompts: Any
):
    await call(device, theirs)
    assert not device.reject()
    assert bearer(await call(device, theirs)) == "t0ken-2"
    assert len(prompts) == 2


async def test_many_at_once_ask_the_person_once(device: Any, call: Any, site: Any, theirs: Any, prompts: Any):
    site.gate.clear()
    calls = [asyncio.create_task(call(device, theirs)) for _ in range(10)]
    await site.reached.wait()
    site.gate.set()
    await asyncio.gather(*calls)
    assert {bearer(each) for each in site.arrived} == {"t0ken-1"}
    assert len(prompts) == 1


async def test_the_prompt_may_be_async_and_gets_the_complete_address(call: Any, site: Any, theirs: Any, time: Any):
    prompts: list[Any] = []

    async def prompt(*words: Any) -> None:
        prompts.append(words)

    site.device["verification_uri_complete"] = "https://issuer.example/device?code=ABCD"
    await call(DeviceCode("me", prompt=prompt, _now=time, _pause=time.pause), theirs)
    assert prompts == [("https://issuer.example/device", "ABCD-EFGH", "https://issuer.example/device?code=ABCD")]


async def test_the_default_prompt_is_written_to_stderr(
    call: Any, site: Any, theirs: Any, time: Any, capsys: pytest.CaptureFixture[str]
):
    site.device["verification_uri_complete"] = "https://issuer.example/c"
    await call(DeviceCode("me", _now=time, _pause=time.pause), theirs)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "https://issuer.example/device" in printed.err
    assert "ABCD-EFGH" in printed.err
    assert "https://issuer.example/c" in printed.err


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"verification_uri": "javascript:alert(1)"}, "no web address"),
        ({"verification_uri": "https://x/\x1b[2J"}, "no web address"),
        ({"verification_uri": None}, "no web address"),
        ({"verification_uri": "https://[x"}, "no web address"),
        ({"user_code": "A\x1b[2JB"}, "no user_code"),
        ({"device_code": 7}, "no device_code"),
        ({"error": "unauthorized_client"}, "unauthorized_client"),
    ],
)
async def test_an_answer_that_cannot_be_shown_is_refused(
    change: Any, text: str, device: Any, call: Any, site: Any, theirs: Any, prompts: Any
):
    site.device |= change
    with pytest.raises(AuthError, match=text):
        await call(device, theirs)
    assert prompts == []


async def test_the_name_of_an_early_draft_is_understood(device: Any, call: Any, site: Any, theirs: Any, prompts: Any):
    site.device["verification_url"] = site.device.pop("verification_uri")
    await call(device, theirs)
    assert prompts[0][0] == "https://issuer.example/device"


@pytest.mark.parametrize("key", ["deviceAuthorizationUrl", "tokenUrl", "refreshUrl"])
async def test_a_card_cannot_lead_to_another_origin(
    key: str, device: Any, call: Any, card: Any, open_site: Any, site: Any
):
    other = await open_site()
    with pytest.raises(ConfigError, match=other.url):
        await call(device, card({"d": scheme(**{key: other.url + "/device"})}, ["d"]))
    assert other.forms == site.forms == []


async def test_addresses_the_user_gives_may_be_anywhere(call: Any, open_site: Any, time: Any, site: Any):
    other = await open_site()
    auth = DeviceCode(
        "me",
        scopes=["x"],
        device_url=other.url + "/device",
        token_url=other.url + "/token",
        prompt=lambda *words: None,
        _now=time,
        _pause=time.pause,
    )
    assert bearer(await call(auth)) == "t0ken-1"
    assert other.forms[0]["scope"] == "x"
    assert site.forms == []


async def test_a_card_without_the_flow_asks_for_the_addresses(device: Any, call: Any, card: Any):
    with pytest.raises(ConfigError, match="pass device_url="):
        await call(device, card({}))


def test_an_address_in_the_clear_is_refused():
    with pytest.raises(ConfigError, match="device_url= must begin with https"):
        DeviceCode("me", device_url="http://issuer.example/device")
