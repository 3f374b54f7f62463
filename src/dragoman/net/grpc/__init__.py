"""gRPC for clients: channels of grpcio behind the interface of the HTTP client, and the frames of its messages."""
