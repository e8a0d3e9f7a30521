"""What a process reads from drives and writes there, by the system's count, and how much room that takes."""

import os
import pathlib
import threading
import time


def moved_by(pid):
    """Bytes read and written."""
    counts = dict(line.split(": ") for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(counts["read_bytes"]), int(counts["write_bytes"])


def free_bytes(folder):
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


class DriveWatch:
    """Of one command (rows.run): looks every so often, in a thread of its own."""

    def __init__(self, folder, every):
        self.folder, self.every = folder, every
        self.samples = []  # time, bytes read, bytes written
        self.stopped = threading.Event()
        self.before = self.least = free_bytes(folder)

    def begin(self, pid):
        self.thread = threading.Thread(target=self.look, args=(pid,))
        self.samples.append((time.time(), 0, 0))
        self.thread.start()

    def end(self):
        self.stopped.set()
        self.thread.join()

    def look(self, pid):
        try:
            while not self.stopped.wait(self.every):
                self.samples.append((time.time(), *moved_by(pid)))
                self.least = min(self.least, free_bytes(self.folder))
        except OSError:
            return  # it has ended

    def room_bytes(self):
        return self.before - self.least

    def moved_between(self, begin, end):
        """Bytes read and written; what lies between two looks grows evenly."""
        return tuple(self.at(end, column) - self.at(begin, column) for column in (1, 2))

    def at(self, when, column):
        earlier = max((sample for sample in self.samples if sample[0] <= when), default=self.samples[0])
        later = min((sample for sample in self.samples if sample[0] > when), default=earlier)
        share = (when - earlier[0]) / (later[0] - earlier[0]) if later[0] > earlier[0] else 0
        return earlier[column] + share * (later[column] - earlier[column])
