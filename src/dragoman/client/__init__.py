"""The A2A client: `Client`, card discovery and resumable event streams."""
