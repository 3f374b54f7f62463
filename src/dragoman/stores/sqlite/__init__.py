"""Tasks in one SQLite file: one writer thread with group commit, read-only readers."""
