"""What the engine needs from the outside: a store, a bus, a sender of webhooks, an agent."""
