"""Webhooks: brought from the journal, in order, until they arrive."""
