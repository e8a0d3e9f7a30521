"""What prun predicts of a row, by what it measures of the row's kernels on this machine."""

import json
import re

from offload.table_rows import FEW_LAYERS, TIMED_STEPS
from offload.trace_times import times_of
from rows import folder_of, last_lines

WHOLE_SECONDS = 180  # a prediction is worth no more
FEW_SECONDS = 120    # nor this of its kernels


def planned(setup, recipe, changes):
    text, code, _ = setup.prun(["plan"], recipe, changes, "--json")
    return json.loads(text[text.index("{"):]) if code == 0 else {"failed": last_lines(text)}


def predicted(setup, name, row):
    """The plan as prun says it, and the times of its simulated step. Kernels are measured only where the cost table, which all
    rows share, does not know them: first those of the recipe with few layers, which all layers have, and with what is on
    drives on the host: drives are known by what prun bench io said."""
    recipe, changes = setup.recipe(name, row), setup.changes(row)
    plan = planned(setup, recipe, changes)
    few = (few_without_drives, with_few_layers) if row.on_drives() else (with_few_layers,)
    troubles = []
    for measure in few + (exchanges,) + ((whole,) if may_run_whole(setup, row) else ()):
        if "failed" in plan or plan["prediction"]:
            break
        if trouble := measure(setup, recipe, changes):
            troubles.append(trouble)
        plan = planned(setup, recipe, changes)
    plan["troubles"] = troubles
    if "failed" in plan or not plan["prediction"]:
        return plan
    trace = folder_of(setup.out, name) / "simulated.json"
    text, code, _ = setup.prun(["trace"], recipe, changes, "--simulated", "--out", trace)
    return {"failed": last_lines(text)} if code else plan | {"times": times_of(trace, last_alone=True)}


def may_run_whole(setup, row):
    needed = row.start + TIMED_STEPS * row.step
    return setup.small or needed < min(WHOLE_SECONDS, setup.seconds_left())


def few_without_drives(setup, recipe, changes):
    on_host = recipe.with_stem("on-host")
    without = re.sub(r"\[tier\.nvme\]\n(\w.*\n)*", "", recipe.read_text())
    on_host.write_text(re.sub(r'"[^"\n]*\bnvme\b[^"\n]*"', '"host"', without))
    return with_few_layers(setup, on_host, [each for each in changes if not each.startswith("tier.nvme.")])


def with_few_layers(setup, recipe, changes):
    few = changes + [f"model.layers={FEW_LAYERS}"]
    trouble = bench(setup, "kernels", recipe, few, "--no-grid", limit=FEW_SECONDS)
    counts = [tensors(setup, recipe, each) for each in (few, changes)]
    if all(counts) and setup.costs.exists():
        count_more_tensors(setup.costs, *counts)
    return trouble


def exchanges(setup, recipe, changes):
    return bench(setup, "comm", recipe, changes, limit=FEW_SECONDS) if "[mesh]" in recipe.read_text() else None


def whole(setup, recipe, changes):
    return bench(setup, "kernels", recipe, changes, "--no-grid", limit=WHOLE_SECONDS)


def bench(setup, what, recipe, changes, *options, limit):
    """What went wrong, if anything."""
    text, code, _ = setup.prun(["bench", what], recipe, changes, *options, limit=limit)
    return f"prun bench {what}: {last_lines(text)}" if code else None


def tensors(setup, recipe, changes):
    """How many of the model's tensors the step counts non-finite gradients of: of all shapes this alone grows with the layers."""
    found = re.search(r"tensors=(\d+)", setup.prun(["plan"], recipe, changes, "--program")[0])
    return found and found[1]


def count_more_tensors(costs, few, many):
    """What counts few takes as long for many."""
    table = json.loads(costs.read_text())
    known = {(entry["device"], entry["shape"]) for entry in table["exact"]}
    more = [entry | {"shape": entry["shape"].replace(f"fp64[{few}]", f"fp64[{many}]")} for entry in table["exact"]]
    table["exact"] += [entry for entry in more if (entry["device"], entry["shape"]) not in known]
    costs.write_text(json.dumps(table))
