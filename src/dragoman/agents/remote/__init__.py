"""Remote A2A agents served as local agents."""
