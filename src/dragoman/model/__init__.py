"""The A2A data model: types, journal records, operations and errors. No I/O."""
