"""What the drives do, as prun bench io shows it, and how near to that a row comes."""

import json

from offload.setup import kept
from rows import last_lines, run

BASELINE = 32  # bytes a parameter and step that DeepSpeed moved: what the aims are said of


def rates(setup):
    """Bytes a second; the cost table has them as well, before a row is predicted."""
    return kept(setup.out / "io.json", lambda: measured(setup))


def measured(setup):
    size = "64MiB" if setup.small else "4GiB"
    text, code, _ = run([setup.build / "bin" / "prun", "bench", "io", setup.disk, "--stripe", 1024, "--depth", 16, "--file-size", size,
                         "--json"], setup.limit())
    if code:
        return {"failed": last_lines(text)}
    return json.loads(text[text.index("{"):])["results"][0]


def shares(row, rates_here, beside):
    """A step's time beside what its own bytes, and the baseline's, take both ways together; and what drives expose: the step less
    that of the same with its state in the host's memory."""
    both = rates_here["mix_read"] + rates_here["mix_write"]
    moves = row["plan"]["offload"]
    own = (moves["from_disk_bytes"] + moves["to_disk_bytes"]) / both
    baseline = BASELINE * row["plan"]["parameters"] / both
    return {"of_baseline": row["seconds"] / baseline, "own_share": own / row["seconds"],
            "exposed": row["seconds"] - beside["seconds"] if beside else None,
            "exposed_predicted": moves.get("exposed_drives_seconds")}
