"""Events on their way to a webhook: order, tries, limits."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.webhook_receiver import WebhookReceiver

from dragoman.clock import SystemClock
from dragoman.net.exchange import is_loopback
from dragoman.net.sockets import SocketClient
from dragoman.testing import Clock
from dragoman.webhooks import memory
from dragoman.webhooks.memory import MAX_EVENTS, RETRY_DELAYS, MemoryDelivery


@pytest.fixture
async def http() -> AsyncIterator[SocketClient]:
    client = SocketClient()
    yield client
    await client.close()


def made(url: str, http: SocketClient, clock: Any = None) -> MemoryDelivery:
    return MemoryDelivery(url, http, clock or SystemClock(), is_loopback)


def body(task: str, number: int) -> bytes:
    return json.dumps({"task": task, "number": number}).encode()


async def rest(delivery: MemoryDelivery) -> None:
    await delivery.drain()


async def paused(clock: Clock) -> None:
    """Wait until somebody waits for the clock."""
    while not clock.pending:  # noqa: ASYNC110 - a clock tells nobody
        await asyncio.sleep(0)


async def test_the_events_of_each_task_arrive_in_order(http: SocketClient) -> None:
    with WebhookReceiver() as receiver:
        delivery = made(receiver.url, http)
        for number in range(20):
            for task in "abcdefghijkl":
                delivery.put(task, body(task, number))
        await rest(delivery)
    for task in "abcdefghijkl":
        assert [each.json["number"] for each in receiver.accepted if each.json["task"] == task] == list(range(20))


async def test_an_error_of_the_receiver_is_tried_again_with_the_same_key_and_holds_the_order(
    http: SocketClient,
) -> None:
    answers = iter([500, 503, 200, 200])
    clock = Clock()
    with WebhookReceiver(lambda _: next(answers)) as receiver:
        delivery = made(receiver.url, http, clock)
        delivery.put("a", body("a", 1))
        delivery.put("a", body("a", 2))
        for tries, pause in enumerate(RETRY_DELAYS, 1):
            await receiver.until(lambda tries=tries: len(receiver.requests) == tries)
            await paused(clock)
            clock.move(pause)
        await rest(delivery)
    assert [each.json["number"] for each in receiver.requests] == [1, 1, 1, 2]
    keys = [each.key for each in receiver.requests]
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]


async def test_after_three_tries_the_next_event_is_delivered(
    http: SocketClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "RETRY_DELAYS", (0.0, 0.0))
    with WebhookReceiver(lambda delivery: 500 if delivery.json["number"] == 1 else 200) as receiver:
        delivery = made(receiver.url, http)
        delivery.put("a", body("a", 1))
        delivery.put("a", body("a", 2))
        await rest(delivery)
    assert [each.json["number"] for each in receiver.requests] == [1, 1, 1, 2]
    assert "HTTP 500" in caplog.text


@pytest.mark.parametrize("status", [302, 400, 410])
async def test_what_the_receiver_does_not_want_is_not_tried_again(http: SocketClient, status: int) -> None:
    with WebhookReceiver(status) as receiver:
        delivery = made(receiver.url, http)
        delivery.put("a", body("a", 1))
        await rest(delivery)
    assert len(receiver.requests) == 1


async def test_a_receiver_that_comes_back_gets_what_was_tried_meanwhile(http: SocketClient) -> None:
    clock = Clock()
    with WebhookReceiver() as receiver:
        pass  # its port is closed now
    delivery = made(receiver.url, http, clock)
    delivery.put("a", body("a", 1))
    await paused(clock)
    assert receiver.requests == []
    with WebhookReceiver(port=receiver.port) as again:
        clock.move(RETRY_DELAYS[0])
        await rest(delivery)
    assert [each.json["number"] for each in again.accepted] == [1]


async def test_what_is_too_much_is_dropped_from_the_oldest_on(
    http: SocketClient, caplog: pytest.LogCaptureFixture
) -> None:
    with WebhookReceiver() as receiver:
        delivery = made(receiver.url, http)
        for number in range(MAX_EVENTS + 50):  # before anybody has begun to bring the first
            delivery.put("a", body("a", number))
        assert delivery.waiting == MAX_EVENTS
        await rest(delivery)
    assert [each.json["number"] for each in receiver.accepted] == list(range(50, MAX_EVENTS + 50))
    assert "has missed 50 events" in caplog.text
    assert len([each for each in caplog.records if each.levelno == logging.WARNING]) == 2


async def test_large_events_count_by_their_size(http: SocketClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MAX_BYTES", 100)
    with WebhookReceiver() as receiver:
        delivery = made(receiver.url, http)
        for number in range(10):
            delivery.put(f"task {number}", body("x" * 30, number))
        delivery.put("large", body("x" * 1000, 10))
        assert delivery.waiting == 1
        await rest(delivery)
    assert [each.json["number"] for each in receiver.accepted] == [10]


async def test_an_address_that_may_not_be_called_any_more_is_not_called(
    http: SocketClient, caplog: pytest.LogCaptureFixture
) -> None:
    delivery = made("https://hooks.example.com/in", http)
    delivery.put("a", body("a", 1))
    await rest(delivery)
    assert "its address may not be called" in caplog.text
