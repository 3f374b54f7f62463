"""Authentication of callers: the schemes that a server accepts."""
