"""How A2A is spelled: one pair of pure functions per wire format, to and from the model."""
