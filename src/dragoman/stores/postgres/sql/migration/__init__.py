"""Writes what another store has into PostgreSQL."""
