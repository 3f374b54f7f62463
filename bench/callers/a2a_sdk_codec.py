"""What a2a-sdk's generated classes and json_format take for messages. Reads {name: [type, value]}, writes microseconds.

Each line: to read the bytes, to read them as ProtoJSON, to write ProtoJSON as bytes.
"""

import json
import sys
import time

from a2a.types import a2a_pb2
from google.protobuf import json_format

ROUNDS, CALLS = 15, 500


def cost(function, *arguments):
    """The CPU time of one call, in the fastest of many rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(CALLS):
            function(*arguments)
        best = min(best, (time.process_time() - began) / CALLS)
    return best * 1e6


def measure(kind, value):
    data = json_format.ParseDict(value, kind()).SerializeToString()
    return {
        "parse": cost(kind.FromString, data),
        "decode": cost(lambda: json_format.MessageToDict(kind.FromString(data))),
        "encode": cost(lambda: json_format.ParseDict(value, kind()).SerializeToString()),
    }


messages = json.load(sys.stdin)
json.dump({name: measure(getattr(a2a_pb2, kind), value) for name, (kind, value) in messages.items()}, sys.stdout)
