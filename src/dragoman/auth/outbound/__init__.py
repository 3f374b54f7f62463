"""What a caller sends to say who it is."""
