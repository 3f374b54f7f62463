"""The MCP server through which an MCP host reaches A2A agents. Needs the extra `mcp`."""
