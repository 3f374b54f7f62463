"""JSON Schema for agents: bounded validation, questions about missing values, parsing of typed answers."""
