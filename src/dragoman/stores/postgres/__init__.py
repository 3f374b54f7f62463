"""The store that several servers share: PostgreSQL."""
