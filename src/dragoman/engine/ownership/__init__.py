"""Who may write a task."""
