"""What all tests need: nobody reads the card of a server that another test had on the same port."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def no_cards_of_others() -> None:
    module = sys.modules.get("dragoman.client.connect")
    if module is not None:
        module.CARDS.clear()
