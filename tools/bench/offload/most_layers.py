"""How many layers of a row's model this machine takes, by planning: rows whose model has no size of its own."""

import dataclasses

from offload.prediction import planned
from offload.setup import kept
from rows import folder_of

FEWEST, MOST, MORE = 12, 80, 2
PERCENT = range(0, 65, 5)  # of the optimizer's state that the device may have, where the host has no room for it
WITH_SAVES = ["run.save_every=50"]


def sized(setup, name, row):
    """The row with as many layers as fit, and with as much of its optimizer on the host as fits there."""
    if not row.most_layers:
        return row
    found = kept(folder_of(setup.out, name) / "layers.json", lambda: searched(setup, name, row))
    return row if "failed" in found else with_layers(row, found["layers"], found["percent"])


def with_layers(row, layers, percent):
    place = f"device:{percent}, host:{100 - percent}" if percent else "host"
    return dataclasses.replace(row, changes=row.changes + [f"model.layers={layers}", f"{row.most_layers}.optimizer={place}"], layers=layers)


def searched(setup, name, row):
    """From few layers on, two more at a time; where they do not fit, with more of the optimizer on the device, since the host has no
    room for it. Of a small model any number fits."""
    if setup.small:
        return {"layers": FEWEST, "percent": PERCENT[1]}
    recipe, best, layers = setup.recipe(name, row), None, FEWEST
    for percent in PERCENT:
        while layers <= MOST:
            plan = planned(setup, recipe, setup.changes(with_layers(row, layers, percent), *WITH_SAVES))
            if "failed" in plan or "crowded_host" in plan:  # it does not fit a rank, or not all ranks of the host
                break
            best, layers = {"layers": layers, "percent": percent}, layers + MORE
    return best or {"failed": plan.get("failed", f"{FEWEST} layers do not fit the host")}
