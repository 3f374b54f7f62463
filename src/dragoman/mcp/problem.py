"""What a tool cannot do, in words for the model that called it."""

from __future__ import annotations

from dragoman.model.error import A2AError, AuthError, BadCard, CannotConnect, DragomanError


class ToolProblem(Exception):
    """A tool fails, and its text says why and what to do instead."""


def request_failed(error: DragomanError) -> ToolProblem:
    """What to say when a request to an agent failed."""
    if isinstance(error, CannotConnect):
        return ToolProblem(f"Request failed: {reason_of(error)}")
    if isinstance(error, AuthError):
        return ToolProblem(
            "Request failed: the agent wants other credentials: the user configures them under [remotes]"
        )
    if isinstance(error, A2AError):
        return ToolProblem(f"Request failed: {error.message} ({type(error).__name__}, {error.code})")
    return ToolProblem(f"Request failed: {error}")


def card_failed(error: DragomanError, base_url: str) -> ToolProblem:
    """What to say when an agent's card could not be had."""
    if isinstance(error, CannotConnect):
        return ToolProblem(f"Failed to resolve agent card: {reason_of(error)}")
    if isinstance(error, BadCard):
        return ToolProblem(f"Failed to resolve agent card: No agent card found at {base_url} ({error})")
    return ToolProblem(f"Failed to resolve agent card: {error}")


def reason_of(error: CannotConnect) -> str:
    """Why nobody answers, in the fewest words."""
    text = str(error).lower()
    if "refused" in text:
        return "connection refused"
    if error.reason == "TIMEOUT" or "timed out" in text or "timeout" in text:
        return "timeout"
    return str(error)
