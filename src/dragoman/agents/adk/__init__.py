"""Google ADK: its agents as agents of Dragoman, and remote A2A agents as agents of ADK."""
