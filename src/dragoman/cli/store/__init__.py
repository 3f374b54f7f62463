"""Commands that work on the file of a store."""
