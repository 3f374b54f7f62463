"""Spans that are collected in memory, for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.otlp_collector import SpanMemory, collected_spans


@pytest.fixture
def spans() -> Iterator[SpanMemory]:
    with collected_spans() as memory:
        yield memory
