"""Command-line programs as agents: each task runs in a session, a process manager runs the program."""
