"""MCP servers that nobody here wrote: how each is started, and what its tools are called with."""
