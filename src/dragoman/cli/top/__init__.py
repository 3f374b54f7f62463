"""`dragoman top`: what a server does, live, from its metrics alone."""
