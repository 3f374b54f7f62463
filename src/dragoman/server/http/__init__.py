"""The ASGI app: router, middleware, pages."""
