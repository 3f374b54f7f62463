"""Installation of this server in MCP hosts."""
