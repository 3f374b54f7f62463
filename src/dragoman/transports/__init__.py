"""The protocol bindings: JSON-RPC and HTTP+JSON over plain ASGI, streams as server-sent events."""
