"""The public classes `Agent` and `Server`, and in-process connections to them."""
