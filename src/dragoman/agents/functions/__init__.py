"""Python functions as an agent."""
