"""The source documents' own nouns, as thin faces over the engine."""
