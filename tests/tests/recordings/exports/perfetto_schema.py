"""Reads a Perfetto trace by the schema that Perfetto publishes (python package `perfetto`).

Prints: bytes that are not in the schema; slices of threads; those that are in no other, and what they took; calls left out.
"""

import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2

trace = perfetto_trace_pb2.Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
threads = {packet.track_descriptor.uuid for packet in trace.packet if packet.track_descriptor.HasField("thread")}
stacks = {track: [] for track in threads}
slices, outermost, outermost_ns, left_out = 0, 0, 0, 0
for packet in trace.packet:
    event = packet.track_event
    stack = stacks.get(event.track_uuid)
    if event.type == event.TYPE_INSTANT:
        figures = {figure.name: figure.uint_value for figure in event.debug_annotations}
        left_out += figures["calls_left_out"]
    elif stack is not None and event.type == event.TYPE_SLICE_BEGIN:
        stack.append(packet.timestamp)
    elif stack is not None and event.type == event.TYPE_SLICE_END:
        begin = stack.pop()
        slices += 1
        if not stack:
            outermost += 1
            outermost_ns += packet.timestamp - begin
size = trace.ByteSize()
trace.DiscardUnknownFields()
print(size - trace.ByteSize(), slices, outermost, outermost_ns, left_out)
