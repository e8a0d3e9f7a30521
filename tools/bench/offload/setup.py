"""On which machine tools/bench/offload_table runs, with what, and how much time it has."""

import json
import os
import pathlib
import random
import string
import time

from rows import folder_of, run, sets, written

SMALL = ["model.layers=6", "model.hidden=64", "model.heads=4", "model.kv_heads=2", "model.ffn=128", "model.seq=64", "model.vocab=256",
         "optimizer.schedule.warmup=5"]


class Setup:
    def __init__(self, arguments):
        self.build, self.out = pathlib.Path(arguments.build).resolve(), pathlib.Path(arguments.out).resolve()
        self.small, self.device, self.more = arguments.small, arguments.device, arguments.set
        self.disk = pathlib.Path(arguments.disk).resolve()
        self.deadline = time.time() + 60 * arguments.minutes if arguments.minutes else None
        carried = self.build / "configs"
        self.configs = carried if carried.exists() else pathlib.Path(__file__).parents[3] / "configs"
        self.corpus = self.text_to_train_on()
        self.share_cores(1)

    def share_cores(self, ranks):
        """Nothing that was measured before is used, and nothing of it changed; nor what a rank with more of the cores has measured."""
        cache = self.out / ("cache" if ranks == 1 else f"cache-{ranks}")
        os.environ["XDG_CACHE_HOME"] = str(cache)
        self.costs = cache / "prun" / "costs.json"

    def text_to_train_on(self):
        """Letters at random: what is learned does not matter, and this needs no file from elsewhere."""
        file = self.out / "corpus" / "text.md"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            table = bytes(ord((string.ascii_lowercase + "      ")[byte % 32]) for byte in range(256))
            file.write_bytes(random.Random(1).randbytes(8 << 20).translate(table))
        return file.parent

    def seconds_left(self):
        return self.deadline - time.time() if self.deadline else float("inf")

    def limit(self):
        """Seconds that one command may take."""
        return max(1, min(1800, self.seconds_left()))

    def recipe(self, name, row):
        return written(self.configs / f"{row.recipe}.toml", row.strategies, folder_of(self.out, name) / "recipe.toml")

    def changes(self, row, *more):
        """The row's on this machine, whose shape comes behind the row's own where it is small."""
        here = [f"device.plugin={self.device}", f"data.path={self.corpus}"]
        if row.on_drives():
            here.append(self.drives())
        said = [each for each in self.more if self.is_read(row, each)]
        return here + row.changes + (SMALL if self.small else []) + list(more) + said

    def is_read(self, row, change):
        """The table of a tier that the row has nothing on is refused, and so is a second one of the device."""
        if change.startswith("tier.nvme."):
            return row.on_drives() or any(each.startswith("tier.nvme.") for each in row.changes)
        return self.device != "cpu" or not change.startswith("tier.cpu.")

    def drives(self):
        return f"tier.nvme.paths={json.dumps([str(self.disk)])}"

    def prun(self, words, recipe, changes, *options, limit=float("inf")):
        """What it printed, its exit code and its seconds."""
        return run([self.build / "bin" / "prun", *words, recipe] + sets(changes) + list(options), min(limit, self.limit()))


def kept(file, make):
    """What is known already; else what is made now, which is kept unless it failed."""
    if file.exists():
        return json.loads(file.read_text())
    made = make()
    if "failed" not in made and "not_run" not in made:
        file.write_text(json.dumps(made))
    return made
