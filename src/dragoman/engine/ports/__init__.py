"""Ports of the engine: the protocols that stores, buses, webhook senders and agents implement."""
