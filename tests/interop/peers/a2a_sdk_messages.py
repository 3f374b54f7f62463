"""Read and write protobuf messages with the generated classes of a2a-sdk, of the module that is the argument.

Each line of input is one JSON array, and so is each line of output:

    ["read", message, hex, ...]    ->  the ProtoJSON of each message, null for what is none
    ["write", message, json, ...]  ->  each message in hex
"""

import importlib
import json
import sys

from google.protobuf import json_format
from google.protobuf.message import DecodeError

classes = importlib.import_module(sys.argv[1])


def read(kind, text):
    try:
        return json_format.MessageToDict(kind.FromString(bytes.fromhex(text)))
    except (DecodeError, ValueError, json_format.Error):
        return None


def write(kind, value):
    return json_format.ParseDict(value, kind()).SerializeToString().hex()


for line in sys.stdin:
    what, name, *items = json.loads(line)
    kind = getattr(classes, name)
    print(json.dumps([{"read": read, "write": write}[what](kind, each) for each in items]), flush=True)
