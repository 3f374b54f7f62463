"""The methods of the gRPC services of A2A: what each is for, and the messages it takes and gives."""

from __future__ import annotations

from typing import NamedTuple

from dragoman.dialects.protobuf.files import FILES
from dragoman.dialects.table import GRPC_ROWS, Row
from dragoman.model.operation import Operation
from dragoman.transports.grpc.codec import Codec, codec_of


class GrpcMethod(NamedTuple):
    """A method of a service: its operation, and the names of its messages."""

    row: Row
    operation: Operation
    codec: Codec
    request: str
    response: str


def _build_methods() -> dict[str, GrpcMethod]:
    services = {service.full_name: service for file in FILES for service in file.services.values()}
    methods: dict[str, GrpcMethod] = {}
    for row in GRPC_ROWS:
        codec = codec_of(row.service.rpartition(".")[0])
        for operation, name in row.methods.items():
            schema = services[row.service].methods[name]
            methods[f"/{row.service}/{name}"] = GrpcMethod(row, operation, codec, schema.request, schema.response)
    return methods


# By path, as in `/lf.a2a.v1.A2AService/SendMessage`.
METHODS = _build_methods()
