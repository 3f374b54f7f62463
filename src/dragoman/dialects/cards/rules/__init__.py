"""What is wrong with an agent card, rule by rule."""
