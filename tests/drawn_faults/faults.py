"""A fault, drawn: a verb of prun, what is wrong with what it gets, and what must hold in the end."""

import json
import os
import resource
import shutil
import signal

import mutations
import watch
from verbs import VERBS, WRITERS, sets

KINDS = ("files", "links", "limits", "signals", "texts", "streams")
WEIGHTS = (34, 18, 14, 18, 12, 4)
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT, signal.SIGKILL]
LIMITS = {"FSIZE": [0, 1, 100, 4096, 20000, 200000], "AS": [2**26, 2**27, 2**28, 2**29, 2**30], "NOFILE": [4, 6, 8, 10, 16, 24, 40],
          "STACK": [2**17, 2**18, 2**20, 2**22], "NPROC": [0, 1, 3], "CORE": [0, 1], "CPU": [1], "DATA": [2**22, 2**25, 2**27], "MEMLOCK": [0]}
# Keys whose value is a text of the user's.
TEXT_KEYS = ["run.name", "run.out", "data.path", "model.plugin", "run.resume", "model.init", "device.plugin", "optimizer.plugin", "run.allow_changed"]


class Case:
    def __init__(self, draw, prun, example, folder, kind=None):
        self.draw, self.prun, self.folder = draw, prun, folder / "w"
        self.kind = kind or draw.choices(KINDS, WEIGHTS)[0]
        self.tag = f"drawn-{os.getpid()}-{folder.name}-".encode()
        self.faults, self.limits, self.ignored, self.closed, self.signals, self.streams = [], [], [], [], [], {}
        self.ended = None
        shutil.copytree(example, self.folder)
        self.canary = folder / "canary"
        self.canary.mkdir()
        (self.canary / "file").write_text("what was here before\n")
        self.before = {path.relative_to(self.folder) for path in self.folder.rglob(".*")}
        wanted = [verb for verb in VERBS if self.fits(verb)]
        self.verb = draw.choice(wanted)
        self.words = list(self.verb.words)
        if draw.random() < 0.5:
            recipe = self.folder / "r.toml"
            recipe.write_text(recipe.read_text().replace("dp = 2", "dp = 1"))
        getattr(self, "draw_" + self.kind)()
        if self.verb.name == "watch":  # it goes on until somebody has seen enough
            self.signals.append((2.0, signal.SIGINT, False))
        if draw.random() < 0.12 and self.kind != "files" and self.verb.reads and not self.verb.goes_on:
            self.draw_files()

    def fits(self, verb):
        if self.kind in ("files", "links"):
            return bool(verb.reads)
        return self.kind != "signals" or (verb.name in WRITERS and (verb.goes_on or self.draw.random() < 0.6))

    def said(self):
        return "; ".join(self.faults)

    def last_lines(self):
        return [ascii(line)[1:-1][:300] for line in (self.ended.out + "\n" + self.ended.err).strip().splitlines()[-6:]] if self.ended else []

    def draw_files(self):
        name = self.draw.choice(self.verb.reads)
        path = self.folder / name
        if not path.exists():
            if path.is_symlink():
                return
            path.write_text("{}")
        if not mutations.is_plain(path):
            return
        if self.draw.random() < 0.06:
            other = self.folder / self.draw.choice(("run/log.jsonl", "hf/model.safetensors", "tokenizer.json", "r.toml", "tok.bin"))
            shutil.copy(other, path) if not path.samefile(other) else path.write_bytes(b"")
            self.faults.append(f"{name} is {other.name}")
            return
        for _ in range(self.draw.choice((1, 1, 1, 2, 4))):
            self.faults.append(f"{name}: {mutations.mutate(self.draw, path)}")

    def draw_links(self):
        name = self.verb.writes if self.verb.writes and self.draw.random() < 0.3 else self.draw.choice(self.verb.reads)
        self.faults.append(f"{name}: {mutations.replace_kind(self.draw, self.folder / name, self.canary / 'file')}")

    def draw_limits(self):
        name = self.draw.choice(sorted(LIMITS))
        most = self.draw.choice(LIMITS[name])
        self.limits.append((getattr(resource, "RLIMIT_" + name), most))
        self.faults.append(f"RLIMIT_{name} {most}")

    def draw_signals(self):
        for _ in range(self.draw.choice((1, 1, 1, 2))):
            moment = self.draw.choice((self.draw.uniform(0, 0.1), self.draw.uniform(0, 0.5), self.draw.uniform(0, 1.5)))
            self.signals.append((moment, self.draw.choice(SIGNALS), self.draw.random() < 0.3))
        if self.draw.random() < 0.2:
            self.ignored = [number for _, number, _ in self.signals if number != signal.SIGKILL]
        self.faults += [f"{number.name} after {moment:.3f} s{' to its group' if group else ''}" for moment, number, group in self.signals]
        self.faults += [f"{number.name} ignored" for number in self.ignored]

    def draw_streams(self):
        self.closed = self.draw.choice(([0], [1], [2], [0, 1], [1, 2], [0, 1, 2]))
        self.faults.append(f"closed: {self.closed}")

    def draw_texts(self):
        text = self.draw.choice(mutations.TEXTS)
        how = self.draw.choice((self.text_in_a_value, self.text_in_a_recipe, self.text_in_a_name, self.text_in_what_others_wrote))
        how(text)
        self.faults.append(f"{how.__name__}: {text[:40]!a}")

    def text_in_a_value(self, text):
        key = self.draw.choice(TEXT_KEYS)
        if self.verb.words[0] not in ("r.toml", "check", "plan", "verify", "trace"):
            self.verb = VERBS[0]
            self.words = list(self.verb.words)
        quoted = text if self.draw.random() < 0.4 else json.dumps(text, ensure_ascii=False)
        self.words += ["--set", f"{key}={quoted}"]

    def text_in_a_recipe(self, text):
        path = self.folder / "r.toml"
        lines = path.read_text().splitlines()
        at = self.draw.choice([number for number, line in enumerate(lines) if '= "' in line])
        key = lines[at].split(" = ")[0]
        lines[at] = f"{key} = {json.dumps(text)}" if self.draw.random() < 0.7 else f'{key} = "{text}"'
        path.write_text("\n".join(lines) + "\n")
        if "r.toml" not in self.verb.words:
            self.verb = self.draw.choice([verb for verb in VERBS if "r.toml" in verb.reads])
            self.words = list(self.verb.words)

    def text_in_a_name(self, text):
        names = [name for name in self.verb.words if (self.folder / name).is_file()]
        name = text.replace("/", "_")[:100] + "x"
        at = self.words.index(self.draw.choice(names)) if names else len(self.words) - 1
        if names and self.draw.random() < 0.7:
            (self.folder / self.words[at]).rename(self.folder / name)
        self.words[at] = name

    def text_in_what_others_wrote(self, text):
        files = {"ds.json", "megatron.sh", "titan.toml", "hf/config.json", "tokenizer.json", "run/log.jsonl", "run/step-00000003/manifest.json"}
        self.verb = self.draw.choice([verb for verb in VERBS if files & set(verb.reads)])
        self.words = list(self.verb.words)
        name = self.draw.choice(sorted(files & set(self.verb.reads)))
        parts = (self.folder / name).read_text().split('"')
        at = self.draw.randrange(1, max(2, len(parts) - 1), 2) if len(parts) > 2 else 0
        whole = text if name.endswith(".sh") else json.dumps(text, ensure_ascii=self.draw.random() < 0.6)[1:-1]
        parts[at] = whole if self.draw.random() < 0.6 else parts[at] + whole
        (self.folder / name).write_text('"'.join(parts))

    def judge(self):
        sent = [number for _, number, _ in self.signals]
        self.ended = self.run(self.words, signals=self.signals, limits=self.limits, ignored=self.ignored, closed=self.closed)
        found = watch.complaints(self.verb, self.ended, sent, self.limits, self.closed)
        if self.ended.late:
            return found
        found += self.elsewhere()
        if signal.SIGKILL in sent or signal.SIGQUIT in sent:
            found += self.again()
        found += self.hidden()
        if self.verb.goes_on and not found:
            found += self.goes_on()
        return found

    def run(self, words, **how):
        return watch.run(self.prun, words, self.folder, self.tag, **how)

    def elsewhere(self):
        names = sorted(path.name for path in self.canary.iterdir())
        kept = names == ["file"] and (self.canary / "file").read_text() == "what was here before\n"
        return [] if kept else [f"what a link leads to was changed: {names}"]

    def hidden(self):
        after = {path.relative_to(self.folder) for path in self.folder.rglob(".*")}
        left = sorted(str(path) for path in after - self.before if ".tmp-" in path.name)
        return [f"left behind: {left}"] if left else []

    def again(self):
        """After SIGKILL the same once more removes what was left."""
        ended = self.run(self.words)
        verb = self.verb
        return ["once more: " + sentence + f" ({ended.err.strip()[-200:]!a})" for sentence in watch.complaints(verb, ended)]

    def goes_on(self):
        """Whatever stands in the folder of the run is whole, and leads to the loss that an undisturbed run has."""
        new = self.folder / "new"
        if not any(new.glob("step-*")):
            return []
        verified = self.run(["ckpt", "verify", "new"])
        if verified.code != 0:
            return [f"prun ckpt verify: exit code {verified.code}: {(verified.out + verified.err)[-300:]!a}"]
        resumed = self.run(self.words + list(sets(run_resume="new")))
        self.undisturbed = self.run([word.replace("out=new", "out=whole") for word in self.words])
        losses = [self.losses(name) for name in ("new", "whole")]
        if 40 not in losses[0] or 40 not in losses[1]:
            return [f"resuming does not reach step 40: exit code {resumed.code}: {resumed.err[-300:]!a}"]
        return [] if losses[0][40] == losses[1][40] else [f"loss {losses[0][40]!r} once resumed, {losses[1][40]!r} undisturbed"]

    def losses(self, name):
        lines = (json.loads(line) for line in (self.folder / name / "log.jsonl").read_text().splitlines() if line.endswith("}"))
        return {line["step"]: line["loss"] for line in lines if line["type"] == "step"}
