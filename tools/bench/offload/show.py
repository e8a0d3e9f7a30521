"""The rows of tools/bench/offload_table as text."""

from offload.drives import shares
from offload.trace_times import KINDS
from offload.training import bytes_in

TRAINING = ("| row | tokens/s of all ranks | aim | ms a step | predicted | of the bound, % | computing, % (aim) | "
            "predicted exposed, ms: to device, to host, drives, updates, exchanges; exchanges as logged | steps beyond optimizer.clip, % | "
            "device, GiB in use (planned) | host | drives | to the first step, s | GPU |")
LINKS = ("| row | ms a step | predicted | computing, % (aim) | exposed, ms, measured / predicted: to device | to host | drives | "
         "updates | exchanges |")
DRIVES = ("| row | bytes a parameter read, written (planned) | step of what 32 bytes take, % (aim) | "
          "its bytes' time of the step, % | drives exposed, ms: measured / predicted |")
ADAMW = "| format | Gparam/s | bytes each | of triad, % |"
CLIPPED = "| moments | equal steps | last checkpoints | beyond the limit | changes between the two |"
BITS = "| setting | equal steps of 20 |"


def ruled(head, lines):
    return [head, "|" + "---|" * (head.count("|") - 1)] + lines if lines else []


def per_cent(value, digits=1):
    return "–" if value is None else f"{100 * value:.{digits}f}"


def milliseconds(value):
    return "–" if value is None else f"{1e3 * value:.4g}"


def gib(used, planned):
    return f"{used / 2**30:.3g} ({planned / 2**30:.3g})" if used or planned else "–"


def off(row, predicted):
    return f"{100 * (predicted / row['seconds'] - 1):+.1f} %" if predicted else "–"


def with_aim(value, aim):
    return per_cent(value) + (f" ({per_cent(aim, 0)})" if aim else "")


def training_line(name, row):
    bound = row["bound_seconds"] / row["seconds"] if "bound_seconds" in row else None
    exposed = row["plan"].get("times", {}).get("exposed")
    predicted = ", ".join(milliseconds(exposed[kind]) for kind in KINDS) if exposed else "–"
    logged = "" if row["exchanges_exposed"] is None else "; " + milliseconds(row["exchanges_exposed"])
    cells = [name, f"{row['tokens_per_second']:.0f}", f"{row['aim']:.0f}" if row["aim"] else "–",
             milliseconds(row["seconds"]), off(row, row.get("predicted_seconds")), per_cent(bound),
             with_aim(row.get("computes"), row["computes_aim"]), predicted + logged, per_cent(row.get("beyond"), 0),
             gib(row["device_bytes"], row["device_planned"]), gib(row["host_bytes"], row["host_planned"]),
             gib(row.get("disk_bytes", 0), row["disk_planned"]), f"{row['first_step_seconds']:.1f}", row["state"] or "–"]
    return "| " + " | ".join(cells) + " |"


def links_line(name, row):
    simulated = row["predicted"]["exposed"] if row["predicted"] else {}
    pairs = [f"{milliseconds(row['times']['exposed'][kind])} / {milliseconds(simulated.get(kind))}" for kind in KINDS]
    computes = with_aim(row["times"]["compute"] / row["seconds"], row["computes_aim"])
    return "| " + " | ".join([name, milliseconds(row["seconds"]), off(row, row["predicted_seconds"]), computes] + pairs) + " |"


def drives_line(name, row, rows):
    of = shares(row, row["io"], rows.get(row["beside"]))
    parameters, moves = row["plan"]["parameters"], row["plan"]["offload"]
    planned = [moves[way] / parameters for way in ("from_disk_bytes", "to_disk_bytes")]
    measured = row["moved_each"]
    return (f"| {name} | {measured[0]:.2f}, {measured[1]:.2f} ({planned[0]:.2f}, {planned[1]:.2f}) | "
            f"{with_aim(of['of_baseline'], row['drives_aim'])} | {per_cent(of['own_share'])} | "
            f"{milliseconds(of['exposed'])} / {milliseconds(of['exposed_predicted'])} |")


def adamw_lines(row):
    return [f"| {each['format']} | {each['gparams_per_second']:.3f} | {each['bytes_each']} | {per_cent(each['of_triad'])} |"
            for each in row["formats"]]


def bits_lines(row):
    return [f"| {setting} | {found.get('equal', found.get('failed'))} |" for setting, found in row["settings"].items()]


def clipped_lines(row):
    return [f"| {moments} | {of['equal']} of {of['steps']} | {'the same' if of['same_checkpoints'] else 'not the same'} | {of['beyond']} | {of['turns']} |"
            for moments, of in row["moments"].items()]


def sequence_line(name, row):
    return (f"{name}: {row['longest']} tokens are planned to fit; a step of {row['seq']} in {row['seconds']:.1f} s, "
            f"loss {row['loss']:.4f}; GiB in use (planned): device {gib(row['device_bytes'], row['device_planned'])}, host "
            f"{gib(row['host_bytes'], row['host_planned'])}")


def line_of(name, row):
    """Of one row, as it ends."""
    if "failed" in row:
        return f"{name}: failed: {row['failed']}"
    if "formats" in row:
        return f"adamw: {row['cores']} cores, triad {row['triad_gb_per_second']:.1f} GB/s; " + ", ".join(
            f"{each['format']} {each['gparams_per_second']:.3f} Gparam/s, {per_cent(each['of_triad'])} %" for each in row["formats"])
    if "settings" in row:
        return f"bits: 20 of 20 steps equal with each of {len(row['settings'])} settings"
    if "moments" in row:
        return "clipped bits: " + "; ".join(f"{moments} moments, {of['equal']} of {of['steps']} steps equal, {of['beyond']} of them beyond the limit, "
                                            f"{of['turns']} changes" for moments, of in row["moments"].items())
    if "longest" in row:
        return sequence_line(name, row)
    return links_line(name, row) if "times" in row else training_line(name, row)


def tables(rows):
    """All of them, a kind of row after the other."""
    good = {name: row for name, row in rows.items() if "failed" not in row}
    trained = {name: row for name, row in good.items() if "first_step_seconds" in row}
    text = ruled(TRAINING, [training_line(name, row) for name, row in trained.items()])
    text += bounds(trained) + [said for name, row in trained.items() for said in chosen(name, row["plan"])]
    text += ruled(LINKS, [links_line(name, row) for name, row in good.items() if name.endswith(" links")])
    text += ruled(DRIVES, [drives_line(name, row, trained) for name, row in trained.items() if "io" in row])
    for row in good.values():
        text += ruled(ADAMW, adamw_lines(row)) if "formats" in row else []
        text += ruled(CLIPPED, clipped_lines(row)) if "moments" in row else []
        text += ruled(BITS, bits_lines(row)) if "settings" in row else []
    return text + [sequence_line(name, row) for name, row in good.items() if "longest" in row] + [
        line_of(name, row) for name, row in rows.items() if "failed" in row]


def plan_line(name, plan):
    spaces = ", ".join(f"{bytes_in(plan, space) / 2**30:.4g} GiB of {space}" for space in
                       ("device memory", "pinned host memory", "host memory", "disk") if bytes_in(plan, space))
    return f"{name}: {plan['parameters'] / 1e9:.3g} G parameters, {plan['batch']['tokens']} tokens a step; {spaces}"


def chosen(name, plan):
    """What a plan chose for itself, and why there is no prediction."""
    about = plan["prediction"]["notes"] if plan["prediction"] else [plan["prediction_missing"]]
    said = plan["to_fit"] + ([plan["auto"]] if plan["auto"] else []) + about + plan["troubles"]
    return [f"plan of {name}: {each}" for each in said]


def bounds(trained):
    """What each bound was made of."""
    return [bound_line(name, row["bound_seconds"], row["plan"]["times"], row["plan"]["offload"])
            for name, row in trained.items() if "bound_seconds" in row]


def bound_line(name, seconds, times, moves):
    computes, forward, to_device, to_host = (milliseconds(each) for each in (
        times["compute"], times["forward"], times["busy"]["to device"], times["busy"]["to host"]))
    return (f"bound of {name}: {milliseconds(seconds)} ms; the device computes {computes} ms, {forward} of it forward, the links are at "
            f"work for {to_device} and {to_host} ms, the host's memory moves {moves['host_bytes'] / 2**30:.3g} GiB at "
            f"{moves['host_bytes_per_second'] / 1e9:.1f} GB/s")
