"""The stream of a message or a task as its reader sees it: events, or text to print."""
