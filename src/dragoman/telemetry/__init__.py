"""The leaf layer: logs today, traces and metrics later."""
