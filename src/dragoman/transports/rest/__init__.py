"""The HTTP+JSON binding: `serve` for servers, `call` for clients."""
