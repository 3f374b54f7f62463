"""The wire format of protobuf, and what ProtoJSON makes of it."""
