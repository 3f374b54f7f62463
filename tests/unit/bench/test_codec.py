"""The benchmark of the codec."""

from __future__ import annotations

from bench.codec import MESSAGES

from dragoman.transports.grpc.codec import codec_of


def test_the_messages_that_are_measured_come_back_as_they_were() -> None:
    codec = codec_of("lf.a2a.v1")
    for kind, value in MESSAGES.values():
        assert codec.decode(kind, codec.encode(kind, value)) == value
