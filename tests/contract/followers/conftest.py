"""A follower of each kind, behind a proxy that cuts its connections."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import pytest
from contract.followers.follower import FOLLOWERS, Follower
from contract.followers.teller import Teller
from support.cutting_proxy import Cut, CuttingProxy

from dragoman.testing import served

Opened = tuple[Follower, CuttingProxy]
Open = Callable[..., AbstractAsyncContextManager[Opened]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Ask the same of every follower."""
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", FOLLOWERS)


@pytest.fixture
def through(kind: str) -> Open:
    """Opens a follower of a teller's story, through a proxy that makes these cuts."""

    @asynccontextmanager
    async def opened(
        teller: Teller, cuts: Sequence[Cut] = (), *, app: object = None, **options: object
    ) -> AsyncGenerator[Opened]:
        with served(app or teller.agent) as url:  # pyright: ignore[reportArgumentType] - an app or an agent
            async with CuttingProxy(url, cuts, teller.on_cut) as proxy, AsyncExitStack() as stack:
                make, given = FOLLOWERS[kind]
                follower = make(proxy.url, stack, **{**given, **options})
                await follower.open()
                yield follower, proxy
            teller.release()

    return opened
