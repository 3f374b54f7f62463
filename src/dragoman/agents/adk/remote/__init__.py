"""Remote A2A agents as agents and tools of Google ADK."""
