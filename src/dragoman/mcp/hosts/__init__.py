"""MCP hosts and how they are told about this server."""
