"""What A2A is: frozen types, the fold, the operations, the errors. No I/O."""
