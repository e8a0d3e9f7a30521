"""Steps on either side of optimizer.clip: a limit that a share of a row's steps is beyond, and 200 steps of a small model with updates
that begin before the norm is known beside the same with updates that wait, bit for bit."""

import hashlib
import statistics

from offload.bits import row_of
from offload.setup import kept
from offload.table_rows import EVERYTHING, offload
from rows import folder_of, train

STEPS = {False: 200, True: 40}  # by whether the model is small
MOMENTS = ("fp32", "bf16", "8bit")
WAITS = dict(EVERYTHING, speculate="none")


def steps_in(setup):
    return STEPS[setup.small]


def limit_beyond(norms, share):
    """A limit that this share of the norms is beyond, in the middle between two of them."""
    ordered = sorted(norms, reverse=True)
    beyond = round(share * len(norms))
    return (ordered[beyond - 1] + ordered[beyond]) / 2


def with_limit(setup, name, row, steps):
    """The row's change for its share of steps. Its rate is 0, so that norms do not depend on the limit: those of the same
    steps within it say which it is."""
    folder = folder_of(setup.out, f"{name} norms")
    found = kept(folder / "norms.json", lambda: norms_of(setup, setup.recipe(f"{name} norms", row), setup.changes(row), steps, folder))
    return found if "failed" in found else {"change": f"optimizer.clip={limit_beyond(found['norms'], row.beyond)!r}"}


def norms_of(setup, recipe, changes, steps, folder):
    log = train(setup.build, recipe, changes, steps, folder / "run", setup.limit())
    return log if "failed" in log else {"norms": [step["grad_norm"] for step in log["steps"]]}


def compared(setup, name):
    """By format of the moments: how many of the steps are equal, how many are beyond the limit, how often that changes from a
    step to the next, and whether the last checkpoints are the same."""
    formats = {moments: compared_with(setup, f"{name} {moments}", [f"precision.moments={moments}"]) for moments in MOMENTS}
    wrong = [moments for moments, found in formats.items() if found.get("equal") != steps_in(setup) or not found.get("same_checkpoints")]
    said = "; ".join(f"{moments}: {formats[moments].get('failed', formats[moments])}" for moments in wrong)
    return {"moments": formats} | ({"failed": "not equal: " + said} if wrong else {})


def compared_with(setup, name, changes):
    first = steps_of(setup, f"{name} norms", WAITS, changes + ["optimizer.clip=1e30"])
    if "failed" in first:
        return first
    # Norms hardly fall any more in the last three quarters.
    limit = statistics.median(norm for _, norm in first["steps"][steps_in(setup) // 4:])
    clip = changes + [f"optimizer.clip={limit!r}"]
    waits, begins = (steps_of(setup, f"{name} {said}", where, clip) for said, where in (("waits", WAITS), ("begins", EVERYTHING)))
    for each in (waits, begins):
        if "failed" in each:
            return each
    beyond = [norm > limit for _, norm in waits["steps"]]
    return {"steps": steps_in(setup), "equal": sum(one == other for one, other in zip(waits["steps"], begins["steps"], strict=True)), "limit": limit,
            "beyond": sum(beyond), "turns": sum(one != other for one, other in zip(beyond, beyond[1:])),
            "same_checkpoints": waits["checkpoint"] == begins["checkpoint"], "speculative": begins["speculative"]}


def steps_of(setup, name, where, changes):
    row = row_of(offload(**where), changes + ["batch.order=breadth_first", "optimizer.schedule.warmup=5"])
    exact = ["device.deterministic=true"] if setup.device == "cuda" else []
    folder = folder_of(setup.out, name)
    changes = setup.changes(row, *exact, "run.save_at_end=true")
    return kept(folder / "steps.json", lambda: trained(setup, setup.recipe(name, row), changes, folder))


def trained(setup, recipe, changes, folder):
    steps = steps_in(setup)
    log = train(setup.build, recipe, changes, steps, folder / "run", setup.limit())
    if "failed" in log:
        return log
    files = sorted((folder / "run" / f"step-{steps:08}").glob("*.safetensors"))
    text, code, _ = setup.prun(["plan"], recipe, changes, "--json")
    return {"steps": [[step["loss"], step["grad_norm"]] for step in log["steps"]],
            "checkpoint": [[file.name, hashlib.sha256(file.read_bytes()).hexdigest()] for file in files],
            "speculative": '"speculation"' in text if code == 0 else None}
