"""The protobuf messages of A2A, and of what gRPC servers offer beside it, as tables."""
