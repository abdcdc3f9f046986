"""Reads a Perfetto trace by the schema that Perfetto publishes (python package `perfetto`): packets, and bytes that are not in it."""

import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2

trace = perfetto_trace_pb2.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
size = trace.ByteSize()
trace.DiscardUnknownFields()
print(len(trace.packet), size - trace.ByteSize())
