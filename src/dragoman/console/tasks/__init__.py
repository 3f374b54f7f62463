"""The tasks of the console: lists, one task at any generation, its journal and its webhooks."""
