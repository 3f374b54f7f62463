"""Webhook delivery: events are read from the journal and posted in order, with retries until they arrive."""
