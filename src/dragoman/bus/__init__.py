"""Buses: notifications of new records. They carry no data."""
