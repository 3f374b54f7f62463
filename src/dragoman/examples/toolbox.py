"""An MCP server with a few tools, and the agent made of them: `dragoman serve dragoman.examples.toolbox`.

Run as a program, `python -m dragoman.examples.toolbox`, it is the MCP server alone, on standard input and output.
"""

from __future__ import annotations

import sys

from dragoman.compat.tool_server.toolbox import PUBLIC, TOOLS, new_agent, new_server

__all__ = ["PUBLIC", "TOOLS", "agent", "new_agent", "new_server"]

agent = new_agent([sys.executable, "-m", "dragoman.examples.toolbox"])

if __name__ == "__main__":
    new_server().run("stdio")
