"""The session with an MCP host: stdio transport, elicitation, tasks, resources and task followers."""
