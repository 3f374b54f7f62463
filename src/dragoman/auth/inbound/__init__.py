"""Who is calling: the schemes that a server accepts."""
