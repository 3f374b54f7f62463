"""MCP servers as an agent: each of their tools is a skill. Needs the extra `mcp`."""
