"""What a trace of prun, recorded or simulated, says of its first rank's steps, and the least that they could take."""

import json
import re

KINDS = ("to device", "to host", "drives", "updates", "exchanges")


def kind_of(queue):
    """Of which kind is what computing waits for, where it waits for this queue."""
    if queue == "copy":
        return "batch"
    if queue.startswith("compute."):
        return "updates"
    if way := re.fullmatch(r"copy(\.\d+)?\.(in|out)", queue):
        return "drives" if way[1] else {"in": "to device", "out": "to host"}[way[2]]
    return "exchanges"


def times_of(file, last_alone):
    """Seconds of a step: for which the device computes and does forward, what its computing waits for, by kind, and for how long
    each kind is at work. Of a simulation the last step alone is what repeats."""
    events = json.loads(file.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name" and event["pid"] == 0}
    spans = [event for event in events if event["ph"] == "X" and event["pid"] == 0]
    steps = {span["args"]["step"] for span in spans}
    steps = {max(steps)} if last_alone else steps
    times = {"compute": 0.0, "forward": 0.0, "exposed": dict.fromkeys(KINDS, 0.0), "busy": dict.fromkeys(KINDS, 0.0)}
    for span in spans:
        if span["args"]["step"] in steps:
            add(times, names[span["tid"]], span, span["dur"] / 1e6 / len(steps))
    return times


def add(times, queue, span, seconds):
    if span["cat"] == "wait":
        kind = kind_of(span["name"].removeprefix("wait for "))
        if queue == "compute" and kind in KINDS:
            times["exposed"][kind] += seconds
    elif queue == "compute":
        times["compute"] += seconds
        times["forward"] += seconds if span["name"].startswith("forward") else 0
    elif (kind := kind_of(queue)) in KINDS:
        times["busy"][kind] += seconds


def least_seconds(times, host_bytes, update_bytes, host_rate, clips):
    """A step's bound by what was measured: by computing, by either way of the link, and by the host's memory, whichever takes
    longest. Updates that wait for the norm have only the next forward to hide behind."""
    computes = times["compute"]
    if clips:
        computes += max(0.0, update_bytes / host_rate - times["forward"])
    return max(computes, times["busy"]["to device"], times["busy"]["to host"], host_bytes / host_rate)
