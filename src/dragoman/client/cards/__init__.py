"""What the client does with a card: the interfaces it offers, and the card of a server without HTTP."""
