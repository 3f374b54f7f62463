"""Command-line programs as agents: each conversation has a session, in which a process manager runs the program."""
