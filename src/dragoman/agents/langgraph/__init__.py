"""LangGraph graphs as agents of Dragoman."""
