"""Commands that send messages to an agent and print its answer."""
