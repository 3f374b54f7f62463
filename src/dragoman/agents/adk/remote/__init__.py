"""A remote A2A agent as a local agent of Google's ADK."""
