"""Twenty steps with each setting of offload beside the same without: losses and norms, bit for bit."""

from offload.prediction import planned
from offload.setup import kept
from offload.table_rows import BITS, BITS_MODEL, RECOMPUTED, Row, offload
from rows import folder_of, train

STEPS = 20


def compared(setup, name):
    """By setting: how many steps are equal, or why there are none."""
    without, settings = {}, {}
    for setting, (where, changes) in BITS.items():
        key = tuple(changes)
        if key not in without:
            without[key] = steps_of(setup, f"{name} without {len(without)}", RECOMPUTED, changes)
        more = tight(setup, f"{name} tight", changes) if "mode" in where else []
        settings[setting] = beside(steps_of(setup, f"{name} {setting}", offload(**where), changes + more), without[key])
    worst = [setting for setting, found in settings.items() if found.get("equal") != STEPS]
    return {"settings": settings} | ({"failed": "not equal: " + differences(settings, worst)} if worst else {})


def differences(settings, names):
    return "; ".join(f"{name}: {settings[name].get('failed', str(settings[name].get('equal')) + ' steps are')}" for name in names)


def row_of(strategies, changes):
    return Row("llama-8b-offload", strategies, 0, 0, BITS_MODEL + changes)


def tight(setup, name, changes):
    """Of the memory that all without offload takes, four fifths: something has to leave."""
    row = row_of(RECOMPUTED, changes)
    plan = planned(setup, setup.recipe(name, row), setup.changes(row))
    return [f"device.memory={plan.get('memory_bytes', 0) * 4 // 5}B", setup.drives()]


def steps_of(setup, name, strategies, changes):
    row = row_of(strategies, changes)
    folder = folder_of(setup.out, name)
    exact = ["device.deterministic=true"] if setup.device == "cuda" else []
    return kept(folder / "steps.json", lambda: logged(setup, setup.recipe(name, row), setup.changes(row, *exact), folder))


def logged(setup, recipe, changes, folder):
    log = train(setup.build, recipe, changes, STEPS, folder / "run", setup.limit())
    return log if "failed" in log else {"steps": [[step["loss"], step["grad_norm"]] for step in log["steps"]]}


def beside(steps, reference):
    for each in (steps, reference):
        if "failed" in each:
            return each
    pairs = list(zip(steps["steps"], reference["steps"], strict=True))
    return {"equal": sum(one == other for one, other in pairs), "last_loss": steps["steps"][-1][0]}
