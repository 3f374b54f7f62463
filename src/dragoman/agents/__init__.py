"""What does the work: each kind of agent is one small `run`."""
