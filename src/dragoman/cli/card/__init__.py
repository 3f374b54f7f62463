"""Commands about an agent's card."""
