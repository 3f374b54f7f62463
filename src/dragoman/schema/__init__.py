"""JSON Schema as agents need it: checked within bounds, asked for when missing, read from what was typed."""
