"""Who is told: wake-ups only, never the only copy of anything."""
