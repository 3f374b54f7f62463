"""Several PostgreSQL servers, of which one takes writes: finding it, and moving on when a standby was promoted."""
