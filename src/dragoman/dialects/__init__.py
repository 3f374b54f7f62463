"""The wire formats of A2A: per version, pure code that reads them into the model and writes them from it."""
