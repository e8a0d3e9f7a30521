"""Of a run that is under way, for tools that hurt its ranks."""

import pathlib
import re


def ranks_of(process):
    """The processes that its launcher has started, by rank; one that has ended meanwhile is left out."""
    ranks = {}
    for child in pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        try:
            environment = pathlib.Path(f"/proc/{child}/environ").read_bytes()
        except OSError:
            continue
        if found := re.search(rb"(?:^|\0)PRUN_RANK=(\d+)", environment):
            ranks[int(found[1])] = int(child)
    return ranks
