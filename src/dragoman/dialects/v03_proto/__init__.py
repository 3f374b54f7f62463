"""A2A 0.3 over HTTP+JSON and gRPC: ProtoJSON of package a2a.v1."""
