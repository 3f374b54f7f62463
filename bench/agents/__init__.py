"""The same agent for every contestant. Each module runs in that contestant's own environment."""
