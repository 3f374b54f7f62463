"""A client for remote agents, named as in the source document: fetch a card, submit a task, poll for its result.

    from dragoman.compat.remote import discover_agent, invoke_remote_agent

    card = await discover_agent("https://agent.example.com")
    if card is not None:
        result = await invoke_remote_agent("https://agent.example.com", "Summarize this", timeout_ms=60_000)
        print(result.response_text if result.success else result.error)

An agent that calls others for untrusted callers, or is called by agents itself, should set limits:

    budget = SessionBudget.from_env(os.environ)
    await invoke_remote_agent(url, text, depth=depth + 1, source_agent="me", budget=budget, session="s1", guard=True)

Only cards are cached, for five minutes: every request has its own connection. Certificates are verified.
`clock` is any clock of the engine; tests use `dragoman.testing.Clock`.
"""

from __future__ import annotations

from dragoman.compat.remote.budget import SessionBudget
from dragoman.compat.remote.cards import clear_agent_card_cache, discover_agent, fetch_agent_card
from dragoman.compat.remote.handlers import handle_discover_agent, handle_invoke_remote_agent
from dragoman.compat.remote.invoke import RemoteInvocationResult, invoke_remote_agent
from dragoman.compat.sessions.errors import BudgetExceededError, ExternalServiceError, NotFoundError, ValidationError

__all__ = [
    "BudgetExceededError",
    "ExternalServiceError",
    "NotFoundError",
    "RemoteInvocationResult",
    "SessionBudget",
    "ValidationError",
    "clear_agent_card_cache",
    "discover_agent",
    "fetch_agent_card",
    "handle_discover_agent",
    "handle_invoke_remote_agent",
    "invoke_remote_agent",
]
