"""What the tables of this folder share: they write recipes, run prun, and read what it logged."""

import json
import pathlib
import re
import subprocess
import time

LOGGED = '\n[[observer]]\nplugin = "console"\n\n[[observer]]\nplugin = "jsonl"\n'


def run(command, limit=300, watch=None):
    """What it printed, its exit code and its seconds. A watch is a context that is told the process's number."""
    begin = time.time()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if watch:
        watch.begin(process.pid)
    try:
        text, code = process.communicate(timeout=limit)[0], process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        text, code = f"{command[0]}: no end after {limit:.0f} s", 1
    finally:
        if watch:
            watch.end()
    return text, code, time.time() - begin


def sets(values):
    return [word for value in values for word in ("--set", value)]


def last_lines(text):
    return " / ".join(line.strip() for line in text.strip().splitlines()[-5:])


def strategy(plugin, **options):
    return f'[[strategy]]\nplugin = "{plugin}"\n' + "".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items())


def zero(ranks, stage):
    return f"[mesh]\ndp = {ranks}\n" + strategy("data") + strategy("zero", stage=stage)


def written(recipe, strategies, file):
    """A copy of the recipe with these strategies, if they are not its own, and with an observer that writes what train() reads."""
    text = pathlib.Path(recipe).read_text()
    if strategies is not None:
        text = re.sub(r"\[\[strategy\]\]\n(\w.*\n)*", "", text) + "\n" + strategies
    if "jsonl" not in text:
        text += LOGGED
    file.write_text(text)
    return file


def train(build, recipe, changes, steps, out, limit=300, watch=None):
    """The log's lines by type, when the command began and how long it took; or what went wrong."""
    begin = time.time()
    text, code, seconds = run([build / "bin" / "prun", recipe] + sets(
        [f"run.steps={steps}", "run.save_every=0", "run.save_at_end=false", "run.fresh=true", f"run.out={out}"] + changes),
        limit, watch)
    if code != 0:
        return {"failed": last_lines(text)}
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return {"start": next(row for row in rows if row["type"] == "start"), "steps": [row for row in rows if row["type"] == "step"],
            "memory": rows[-1]["memory"], "begin": begin, "seconds": seconds}


def gpus():
    """What this machine has, a line each, as the driver says it."""
    try:
        return run(["nvidia-smi", "--query-gpu=name,driver_version,power.limit", "--format=csv,noheader"])[0].strip().splitlines()
    except FileNotFoundError:
        return []


def gpu_state():
    fields = "clocks.sm,power.draw,temperature.gpu"
    return run(["nvidia-smi", "-i", "0", f"--query-gpu={fields}", "--format=csv,noheader"])[0].strip()


def folder_of(out, name):
    folder = out / re.sub(r"[^\w.]+", "-", name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def unknown_row(wanted, table):
    """What is to be said where a row is asked for that the table does not have."""
    for name in wanted:
        if name not in table:
            return f"there is no row '{name}'; there are {', '.join(table)}"
    return None
