"""The tools of MCP servers as the skills of an agent. Needs the extra `mcp`."""
