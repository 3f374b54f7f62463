"""From a message to a task: route, repeats, quota."""
