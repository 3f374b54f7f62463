"""What the README and `make run` show."""
