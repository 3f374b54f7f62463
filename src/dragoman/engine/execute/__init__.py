"""From a task to its events: runs, outputs, cancel, recovery."""
