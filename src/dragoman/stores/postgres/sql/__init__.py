"""The SQL of the store that several servers share, on asyncpg."""
