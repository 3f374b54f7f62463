"""The server's secrets: the key ring, encryption, signatures and tokens."""
