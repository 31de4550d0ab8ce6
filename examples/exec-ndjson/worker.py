#!/usr/bin/env python3
"""A worker of the protocol ndjson: a batch a line in, an answer a line out. It refuses what holds no text."""
import json, sys

out = open("delivered.txt", "a")
for line in sys.stdin:
    batch = json.loads(line)
    refused = []
    for number, record in enumerate(batch["records"]):
        if not record["message"].strip():
            refused.append({"record": number, "reason": "an empty line"})
            continue
        out.write(record["message"] + "\n")
    out.flush()
    print(json.dumps({"id": batch["id"], "delivered": True, "refused": refused}), flush=True)
