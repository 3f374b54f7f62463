"""Secrets and what is made with them: the key ring, sealing, signatures."""
