"""The JSON-RPC binding: `serve` for servers, `call` for clients."""
