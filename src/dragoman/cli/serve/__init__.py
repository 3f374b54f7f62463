"""`dragoman serve`: its command, and its options."""
