#!/usr/bin/env python3
"""A processor of the protocol lines: a line in, a line out, at once."""
import sys

for line in sys.stdin:
    print(line.rstrip("\n").upper(), flush=True)
