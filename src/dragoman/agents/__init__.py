"""Everything that can run as an A2A agent: functions, MCP tools, programs, other frameworks, remote agents."""
