"""An agent made of the tools of an MCP server: a greeting, the time, a counter and a sum.

`dragoman serve dragoman.examples.toolbox` serves it as any agent. `python -m dragoman.examples.toolbox` serves it with
`--compat tool-server`, and with a card that names the public address `https://localhost`; `DRAGOMAN_URL` names another,
`DRAGOMAN_PORT` the port.
"""

from __future__ import annotations

import os

from dragoman.compat.tool_server import URL
from dragoman.compat.tool_server.toolbox import PUBLIC, TOOLS, new_agent, new_server

__all__ = ["PUBLIC", "TOOLS", "agent", "new_agent", "new_server"]

agent = new_agent()

if __name__ == "__main__":
    agent.serve(url=os.environ.get("DRAGOMAN_URL", URL), compat="tool-server")
