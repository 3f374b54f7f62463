"""Accepting messages: routing, deduplication, quotas."""
