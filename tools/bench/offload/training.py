"""Rows that train: a plan with its prediction, some steps as prun logs them, and where asked what held them up, as it traces them."""

import re
import statistics

from offload import clipped
from offload.drive_watch import DriveWatch
from offload.drives import rates
from offload.most_layers import sized
from offload.prediction import planned, predicted
from offload.setup import kept
from offload.trace_times import least_seconds, times_of
from rows import folder_of, gpu_state, last_lines, train

TRACED_STEPS = 3


def prediction_of(setup, name, row):
    return kept(folder_of(setup.out, name) / "prediction.json", lambda: predicted(setup, name, row))


def trained(setup, name, row):
    row = sized(setup, name, row)
    io = rates(setup) if row.on_drives() else None
    if io and "failed" in io:
        return io
    plan = prediction_of(setup, name, row)
    result = plan if "failed" in plan else measured(setup, name, row, plan)
    return result if "failed" in result else summary(setup, plan, result, row) | ({"io": io} if io else {})


def aims(setup, row):
    """Those of a small model would mean nothing."""
    return {key: None if setup.small else aim for key, aim in
            {"aim": row.aim, "computes_aim": row.computes, "drives_aim": row.drives}.items()}


def bytes_in(plan, space):
    return sum(each["bytes"] for each in plan["ranges"] if each["space"] == space)


def plan_alone(setup, name, row):
    """Of what a machine's plans count on, which --set says."""
    row = sized(setup, name, row)
    return planned(setup, setup.recipe(name, row), setup.changes(row))


def share_beyond(steps, changes):
    """Of the steps that optimizer.clip changes."""
    limits = [float(change.partition("=")[2]) for change in changes if change.startswith("optimizer.clip=")]
    return statistics.mean(step["grad_norm"] > limits[-1] for step in steps) if limits and limits[-1] else None


def measured(setup, name, row, plan):
    """What the log says of the steps, and the system of drives."""
    watch = DriveWatch(setup.disk, 0.005 if setup.small else 0.5) if row.on_drives() else None
    steps = 2 * row.steps if setup.small else row.steps
    changes = setup.changes(row)
    if row.beyond is not None:
        limit = clipped.with_limit(setup, name, row, steps)
        if "failed" in limit:
            return limit
        changes.append(limit["change"])
    log = train(setup.build, setup.recipe(name, row), changes, steps, folder_of(setup.out, name) / "run", setup.limit(), watch)
    if "failed" in log:
        return log
    done, memory = log["steps"], log["memory"]
    late = done[max(1, len(done) // 4):]
    # Steps beyond the limit, and those behind them, take longer: all of them count.
    mean = statistics.median if row.beyond is None else statistics.mean
    seconds = mean(step["seconds"] for step in late)
    exposed = [step["exposed_seconds"] for step in done if "exposed_seconds" in step]
    result = {"seconds": seconds, "tokens_per_second": log["start"]["tokens_per_step"] / seconds,
              "first_step_seconds": done[0]["time"] - log["begin"], "exchanges_exposed": statistics.median(exposed) if exposed else None,
              "device_bytes": max(one.get("device_bytes", 0) for one in memory), "host_bytes": max(one["peak_bytes"] for one in memory),
              "host_planned": max(one["plan_bytes"] + one["process_bytes"] for one in memory),
              "device_planned": max(one.get("device_plan_bytes", 0) + one.get("device_process_bytes", 0) for one in memory),
              "beyond": share_beyond(done, changes), "losses": [done[0]["loss"], done[-1]["loss"]], "state": gpu_state() if setup.device == "cuda" else ""}
    if watch:
        # The last step reads nothing ahead for a next one.
        last = max(1, len(done) - 2)
        moved = watch.moved_between(done[0]["time"], done[last]["time"])
        result.update(disk_bytes=watch.room_bytes(), moved_each=[each / last / plan["parameters"] for each in moved])
    return result


def summary(setup, plan, result, row):
    """With what was planned and predicted, and how near to its bound and to its aim the row is."""
    result |= aims(setup, row) | {"plan": plan, "beside": row.beside, "disk_planned": bytes_in(plan, "disk")}
    if "times" in plan:
        result["predicted_seconds"] = plan["prediction"]["step_seconds"]
        result["computes"] = plan["times"]["compute"] / result["seconds"]
        if row.updated and "host_bytes_per_second" in plan.get("offload", {}):
            moves = plan["offload"]
            result["bound_seconds"] = least_seconds(plan["times"], moves["host_bytes"], row.updated * plan["parameters"],
                                                    moves["host_bytes_per_second"], row.clips())
    return result


def traced(setup, name, row):
    """Of the row without 'links', by its kinds of links and of work, beside what was simulated."""
    base = name.removesuffix(" links")
    row = sized(setup, base, row)
    plan = prediction_of(setup, base, row)
    if "failed" in plan:
        return plan
    trace = folder_of(setup.out, name) / "trace.json"
    text, code, _ = setup.prun(["trace"], setup.recipe(base, row), setup.changes(row), "--steps", TRACED_STEPS, "--out", trace)
    if code:
        return {"failed": last_lines(text)}
    step = re.search(r"rank 0: ([\d.]+) ms a step", text)
    return {"seconds": float(step[1]) / 1e3, "times": times_of(trace, last_alone=False), "predicted": plan.get("times"),
            "predicted_seconds": plan["prediction"] and plan["prediction"]["step_seconds"]} | aims(setup, row)
