"""SQLite store in one file: one writer thread with group commit, and read-only connections for queries."""
