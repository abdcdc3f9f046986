"""Holds a profile for the Firefox Profiler against `firefox.schema.json` (python package `fastjsonschema`): samples."""

import json
import pathlib
import sys

import fastjsonschema

schema = json.loads(pathlib.Path(__file__).with_name("firefox.schema.json").read_text())
profile = json.loads(pathlib.Path(sys.argv[1]).read_text())
fastjsonschema.compile(schema)(profile)
print(sum(thread["samples"]["length"] for thread in profile["threads"]))
