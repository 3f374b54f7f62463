"""Test tools for agents, clients and stores: a real port, a manual clock, fault injection, and the store contract."""

from __future__ import annotations

# Not lazy: `served`, `faults` and `store_contract` are also the names of their modules, which would be found here
# instead once imported. What is heavy (uvicorn) is imported when it is used.
from dragoman.testing.clock import ManualClock as Clock
from dragoman.testing.faults import faults
from dragoman.testing.served import served
from dragoman.testing.store_contract import durable_store_contract, store_contract

__all__ = ["Clock", "durable_store_contract", "faults", "served", "store_contract"]
