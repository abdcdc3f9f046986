"""Reads a Perfetto trace by the schema that Perfetto publishes (python package `perfetto`): fields that are not in it."""

import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2


def unknown(message):
    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type:
            count += sum(unknown(inside) for inside in (value if field.is_repeated else [value]))
    return count


trace = perfetto_trace_pb2.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
print(len(trace.packet), unknown(trace))
