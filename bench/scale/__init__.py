"""How far one PostgreSQL carries: unit costs, a simulation that reproduces what was measured, and what it predicts."""
