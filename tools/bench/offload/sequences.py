"""The longest sequence that fits the device, by planning, and a step of nearly that."""

from offload.prediction import planned
from offload.setup import kept
from offload.table_rows import Row, offload
from rows import folder_of, train

AT_LEAST = {"device": 1024, "small": 128}  # and what lengths are a multiple of
SHARE = 0.95
FLOPS = 4e14  # a second, for the estimate of a step

WITH = {"longest": "device", "longest activations": "host"}


def row_of(name):
    everywhere = offload(optimizer="host", parameters="host", gradients="host", activations=WITH[name])
    return Row("llama-8b-offload", everywhere, 60, 0, ["batch.global=1", "batch.micro=1"])


def changes_of(setup, row, seq):
    return setup.changes(row, f"model.seq={seq}", *(["device.memory=16MiB"] if setup.small else []))


def longest(setup, name):
    row = row_of(name)
    found = kept(folder_of(setup.out, name) / "longest.json", lambda: search(setup, setup.recipe(name, row), row))
    if "failed" in found:
        return found
    multiple = step_of(setup)
    seq = max(multiple, int(SHARE * found["seq"]) // multiple * multiple)
    plan = planned(setup, setup.recipe(name, row), changes_of(setup, row, seq))
    if "failed" in plan:
        return plan
    needed = row.start + (plan["model_flops"] + plan["recomputed_flops"]) / FLOPS
    result = {"longest": found["seq"], "seq": seq, "plan": plan, "estimate": needed}
    if not setup.small and setup.seconds_left() < needed:
        return result | {"not_run": f"the longest is {found['seq']} tokens; a step of {seq} would take about {needed:.0f} s, longer "
                                    "than is left"}
    return result | one_step(setup, name, row, seq)


def one_step(setup, name, row, seq):
    log = train(setup.build, setup.recipe(name, row), changes_of(setup, row, seq), 1, folder_of(setup.out, name) / "run",
                setup.limit())
    if "failed" in log:
        return log
    memory = log["memory"][0]
    return {"seconds": log["steps"][0]["seconds"], "loss": log["steps"][0]["loss"],
            "device_bytes": memory.get("device_bytes", 0), "host_bytes": memory["peak_bytes"],
            "device_planned": memory.get("device_plan_bytes", 0) + memory.get("device_process_bytes", 0),
            "host_planned": memory["plan_bytes"] + memory["process_bytes"]}


def step_of(setup):
    return AT_LEAST["small" if setup.small else "device"]


def search(setup, recipe, row):
    """Doubled while the plan fits, then halfway, to a hundredth."""
    multiple, fits, too_long = step_of(setup), 0, 1
    while True:
        plan = planned(setup, recipe, changes_of(setup, row, too_long * multiple))
        if "failed" in plan:
            break
        fits, too_long = too_long, 2 * too_long
    while fits and "may be used" in plan.get("failed", "may be used") and too_long - fits > max(1, fits // 100):
        tried = (fits + too_long) // 2
        plan = planned(setup, recipe, changes_of(setup, row, tried * multiple))
        fits, too_long = (fits, tried) if "failed" in plan else (tried, too_long)
    if "may be used" not in plan.get("failed", "may be used"):
        return plan
    return {"seq": fits * multiple} if fits else plan
