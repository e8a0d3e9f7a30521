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
    if re.fullmatch(r".+\.(read|write)", queue):
        return "drives"
    return {"copy.in": "to device", "copy.out": "to host"}.get(queue, "exchanges")


class Spans:
    """By queue, what it did and whom it waited for: begin and end in seconds, in order."""

    def __init__(self, events):
        names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name" and event["pid"] == 0}
        self.calls, self.waits = ({name: [] for name in names.values()} for _ in range(2))
        for event in events:
            if event["ph"] == "X" and event["pid"] == 0:
                of = self.waits if event["cat"] == "wait" else self.calls
                begin = event["ts"] / 1e6
                name = event["name"].removeprefix("wait for ")
                of[names[event["tid"]]].append((begin, begin + event["dur"] / 1e6, name, event["args"]["step"]))

    def steps(self):
        return {step for calls in self.calls.values() for *_, step in calls}

    def to_blame(self, queue, begin, end, asked=("compute",)):
        """Who was at work while this queue was waited for: itself, or, while it waited as well, whom it waited for."""
        for call_begin, call_end, *_ in self.calls.get(queue, []):
            if call_begin < end and begin < call_end:
                yield kind_of(queue), min(end, call_end) - max(begin, call_begin)
        for wait_begin, wait_end, other, _ in self.waits.get(queue, []):
            if wait_begin < end and begin < wait_end and other not in asked:
                yield from self.to_blame(other, max(begin, wait_begin), min(end, wait_end), (*asked, queue))


def times_of(file, last_alone):
    """Seconds of a step: for which the device computes and does forward, what its computing waits for, by kind, and for how long
    each kind is at work. Of a simulation the last step alone is what repeats."""
    spans = Spans(json.loads(file.read_text())["traceEvents"])
    steps = {max(spans.steps())} if last_alone else spans.steps()
    times = {"compute": 0.0, "forward": 0.0, "exposed": dict.fromkeys(KINDS, 0.0), "busy": dict.fromkeys(KINDS, 0.0)}
    for queue, calls in spans.calls.items():
        for begin, end, name, step in calls:
            if step in steps:
                add_call(times, queue, name, (end - begin) / len(steps))
    for begin, end, queue, step in spans.waits["compute"]:
        if step in steps:
            for kind, seconds in spans.to_blame(queue, begin, end):
                if kind in KINDS:
                    times["exposed"][kind] += seconds / len(steps)
    return times


def add_call(times, queue, name, seconds):
    if queue == "compute":
        times["compute"] += seconds
        times["forward"] += seconds if name.startswith("forward") else 0
    elif (kind := kind_of(queue)) in KINDS:
        times["busy"][kind] += seconds


def least_seconds(times, host_bytes, update_bytes, host_rate, clips):
    """A step's bound by what was measured: by computing, by either way of the link, and by the host's memory, whichever takes
    longest. Updates that wait for the norm have only the next forward to hide behind."""
    computes = times["compute"]
    if clips:
        computes += max(0.0, update_bytes / host_rate - times["forward"])
    return max(computes, times["busy"]["to device"], times["busy"]["to host"], host_bytes / host_rate)
