"""What the commands that call an agent share: its address, the session, `--wire`."""
