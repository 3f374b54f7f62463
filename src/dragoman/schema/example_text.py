"""Texts to try a parameter with, by its name."""

from __future__ import annotations

# The last word of a parameter's name, and a text that suits it.
_TEXTS = {
    "address": "1 Main Street, Springfield",
    "city": "Lisbon",
    "country": "Portugal",
    "currency": "EUR",
    "date": "2026-01-31",
    "day": "Monday",
    "destination": "Lisbon",
    "email": "ada@example.org",
    "language": "Portuguese",
    "location": "Lisbon",
    "name": "Ada",
    "place": "Lisbon",
    "question": "What can you do?",
    "time": "12:00",
    "topic": "tea",
    "town": "Lisbon",
    "uri": "https://example.org/",
    "url": "https://example.org/",
    "user": "ada",
}


def example_text(name: str, default: str = "hello") -> str:
    """Return a text that somebody might send as this parameter: `home_city` gets a city, an unknown one the default."""
    return _TEXTS.get(name.casefold().rpartition("_")[2], default)
