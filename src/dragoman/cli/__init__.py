"""The command `dragoman`: a folder per group of commands."""
