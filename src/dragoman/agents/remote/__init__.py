"""Foreign A2A agents as agents."""
