"""The web console: a page for people, its static files, and the HTTP API that it reads."""
