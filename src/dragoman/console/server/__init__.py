"""The view of the server: what it does now, how fast it is, and what went wrong lately."""
