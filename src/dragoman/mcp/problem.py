"""What a tool cannot do, in words for the model that called it."""

from __future__ import annotations

from dragoman.model.error import A2AError, AuthError, BadCard, CannotConnect, DragomanError

NOT_YET = "The agent has not answered yet: its task is not known. Try again in a moment."
# More of what an agent says about an error is not worth reading.
_LONGEST = 500


class ToolProblem(Exception):
    """A tool fails, and its text says why and what to do instead. `because` is for those who want to know more."""

    def __init__(self, text: str, because: str = "") -> None:
        super().__init__(text)
        self.because = because


def request_failed(error: DragomanError) -> ToolProblem:
    """What to say when a request to an agent failed."""
    if isinstance(error, CannotConnect):
        return ToolProblem(f"Request failed: {reason_of(error)}")
    if isinstance(error, AuthError):
        return ToolProblem(
            "Request failed: the agent wants other credentials: the user configures them under [remotes]"
        )
    if isinstance(error, A2AError):
        # In quotes: these are the agent's words, and not ours.
        said = f'the agent says "{error.message[:_LONGEST]}"'
        return ToolProblem(f"Request failed: {said} ({type(error).__name__}, {error.code})")
    return ToolProblem(f"Request failed: {str(error)[:_LONGEST]}")


def card_failed(error: DragomanError, base_url: str) -> ToolProblem:
    """What to say when an agent's card could not be had."""
    if isinstance(error, CannotConnect):
        return ToolProblem(f"Failed to resolve agent card: {reason_of(error)}")
    if isinstance(error, BadCard):
        return ToolProblem(f"No agent card found at {base_url}", because=str(error))
    return ToolProblem(f"Failed to resolve agent card: {str(error)[:_LONGEST]}")


def reason_of(error: CannotConnect) -> str:
    """Why nobody answers, in the fewest words."""
    text = str(error).lower()
    if "refused" in text:
        return "connection refused"
    if error.reason == "TIMED_OUT" or "timed out" in text:
        return "timeout"
    return str(error)
