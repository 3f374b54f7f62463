"""Examples for the README and `make run`."""
