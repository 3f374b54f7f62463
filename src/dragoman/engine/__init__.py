"""What happens: the operations, the runs and the streams. Knows only ports."""
