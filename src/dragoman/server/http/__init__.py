"""The ASGI app: router, middleware and the server's own pages."""
