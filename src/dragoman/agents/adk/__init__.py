"""Google ADK: its agents as agents of ours, and the other way round."""
