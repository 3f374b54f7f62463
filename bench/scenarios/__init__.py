"""What is measured, one question per file."""
