"""LangGraph graphs as agents."""
