"""The engine: operations, runs, journals and streams. It reaches the outside through ports only."""
