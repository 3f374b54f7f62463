"""Webhooks: delivered from the journal, in order, until they arrive."""
