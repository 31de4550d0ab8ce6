#!/usr/bin/env python3
"""A bolt of Storm's multilang protocol that counts the words of each line: it emits [word, how often] and acks."""
import collections, json, os, re, sys


def read():
    lines = []
    for line in sys.stdin:
        if line.strip() == "end":
            return json.loads("".join(lines))
        lines.append(line)
    sys.exit(0)  # penstock has closed the input: the run is over


def say(**message):
    sys.stdout.write(json.dumps(message) + "\nend\n")
    sys.stdout.flush()


setup = read()
open(os.path.join(setup["pidDir"], str(os.getpid())), "w").close()
say(pid=os.getpid())
while True:
    message = read()
    if isinstance(message, list):  # the tasks that got an emit; this bolt does not ask for them
        continue
    if message["stream"] == "__heartbeat":
        say(command="sync")
        continue
    for word, count in collections.Counter(re.findall(r"[a-z]+", message["tuple"][0].lower())).items():
        say(command="emit", anchors=[message["id"]], tuple=[word, count], need_task_ids=False)
    say(command="ack", id=message["id"])
