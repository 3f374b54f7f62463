"""Agents of Pydantic AI as agents."""
