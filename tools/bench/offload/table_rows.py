"""The rows of tools/bench/offload_table that train: which recipe, what is changed in it, what is aimed at, how long it takes."""

from dataclasses import dataclass, field

from rows import strategy, zero

FEW_LAYERS = 4    # which have every kernel that all of them have
TIMED_STEPS = 13  # of prun bench kernels

RECOMPUTED = strategy("recompute")


def offload(**where):
    return RECOMPUTED + strategy("offload", **where)


EVERYTHING = {"optimizer": "host", "parameters": "host", "gradients": "host", "activations": "host"}


@dataclass(frozen=True)
class Row:
    recipe: str
    strategies: str
    start: float  # seconds on an H200 until the first step, and of a step: estimates, for --minutes
    step: float
    changes: list = field(default_factory=list)
    steps: int = 6
    aim: float | None = None        # tokens/s
    computes: float | None = None   # aim: computing's share of a step
    drives: float | None = None     # aim: of the time that 32 bytes a parameter take at what prun bench io shows of both ways
    updated: int | None = None      # bytes a parameter that an update in the host's memory reads and writes, where there is a bound
    beside: str | None = None       # the same with its state in the host's memory: what drives expose is the difference
    ranks: int = 1
    layers: int = 32
    beyond: float | None = None     # share of the steps that are to be beyond optimizer.clip
    most_layers: str | None = None  # the strategy offload of a row that has as many layers as fit (most_layers.py)

    def clips(self):
        return any(change.startswith("optimizer.clip=") for change in self.changes)

    def on_drives(self):
        return "nvme" in self.strategies

    def prediction(self):
        """Seconds to measure the kernels of the recipe with few layers."""
        return 15 + TIMED_STEPS * FEW_LAYERS / self.layers * self.step


def everything(step, aim=None, changes=(), updated=26):
    return Row("llama-8b-offload", offload(**EVERYTHING), 30, step, list(changes), aim=aim, updated=updated)


def clipped(change, moments="fp32", **how):
    """Everything on the host, with clipping: in no step, or in all; the first updates before the norm is known."""
    return Row("llama-8b-offload", offload(**EVERYTHING, **how), 40, 2.5, [f"optimizer.clip={change}", f"precision.moments={moments}"])


def tenth(moments="fp32", **how):
    """One step in ten is beyond the limit. The rate of 0 keeps norms as they are; an update moves the same bytes."""
    return Row("llama-8b-offload", offload(**EVERYTHING, **how), 90, 2.5, ["optimizer.clip=1000", "optimizer.lr=0", f"precision.moments={moments}"],
               steps=20, beyond=0.1)


def eight_b(step, changes=(), updated=None, **where):
    return Row("llama-8b-offload", offload(**where), 30, step, list(changes), updated=updated)


def optimizer_alone(step, computes, changes=()):
    return Row("llama-8b-offload", offload(optimizer="host"), 30, step, ["batch.global=16"] + list(changes), computes=computes,
               updated=26)


THREE_B = ["model.layers=28", "model.hidden=3072", "model.heads=24", "model.ffn=8192", "model.seq=2048", "batch.global=16",
           "batch.micro=4", "optimizer.clip=1"]
CLIP = ["optimizer.clip=1"]
FOUR = ["batch.global=16"]


def three_b(where, step, changes, drives=None, beside=None):
    return Row("llama-8b", offload(optimizer=where), 45, step, THREE_B + changes, steps=4, drives=drives, beside=beside, layers=28)


TRAINED = {
    "8b": everything(2, 6300),
    "8b clip": everything(2.7, 4700, CLIP),
    "8b within": clipped(1000),
    "8b beyond": clipped(0.001),
    "8b waits": clipped(1000, speculate="none"),
    "8b tenth": tenth(),
    "8b tenth waits": tenth(speculate="none"),
    "8b bf16 tenth": tenth("bf16"),
    "8b bf16 tenth waits": tenth("bf16", speculate="none"),
    "8b bf16 within": clipped(1000, "bf16"),
    "8b bf16 beyond": clipped(0.001, "bf16"),
    "8b bf16 waits": clipped(1000, "bf16", speculate="none"),
    "8b 8-bit moments": clipped(0, "8bit"),
    "8b 8-bit within": clipped(1000, "8bit"),
    "8b 8-bit waits": clipped(1000, "8bit", speculate="none"),
    "8b bf16 moments": everything(2, None, ["precision.moments=bf16"], updated=18),
    "8b x4 breadth first": everything(8, None, FOUR + ["batch.order=breadth_first"]),
    # Gradients of several microbatches add up on the device, in this order.
    "8b x4 depth first": eight_b(8, FOUR, 26, optimizer="host", parameters="host", activations="host"),
    "8b auto": eight_b(2, mode="auto"),
    "8b update device": eight_b(3, optimizer="host", update="device", activations="host"),
    "8b update auto": eight_b(3, optimizer="host", update="auto", activations="host"),
    "64k": optimizer_alone(7, 0.85),
    "64k clip": optimizer_alone(8, 0.75, CLIP),
    "3b disk": three_b("nvme", 38, ["precision.master=fp32"], 0.78, "3b host"),
    "3b disk split": three_b("nvme", 28, [], 0.65, "3b host split"),
    "3b host": three_b("host", 4, ["precision.master=fp32"]),
    "3b host split": three_b("host", 4, []),
    "3b disk 8-bit": three_b("nvme", 14, ["precision.moments=8bit", "precision.gradient=bf16"], 0.27, "3b host 8-bit"),
    "3b host 8-bit": three_b("host", 4, ["precision.moments=8bit", "precision.gradient=bf16"]),
    "33b": Row("llama-33b-nvme", offload(optimizer="host:62, nvme:38", activations="host"), 170, 110, ["batch.global=8"], steps=2,
               layers=60),
    # The largest for half of such a machine: 128 GiB of host memory, 64 GiB of disk.
    "20b": Row("llama-33b-nvme", offload(optimizer="device:24, host:48, nvme:28", activations="host"), 120, 60,
               ["batch.global=8", "model.layers=36"], steps=2, layers=36),
    "two gpus": Row("llama-8b-offload", zero(2, 3) + offload(**EVERYTHING), 60, 2.5, ["batch.global=8", "run.measure_comm=2"],
                    ranks=2),
}


def seventy_b(moments, step):
    """Llama 3 70B's shape with as many layers as two GPUs and their host take: each GPU has half of parameters and gradients, and of
    the optimizer what the host has no room for."""
    return Row("70b-nvme", zero(2, 3) + offload(optimizer="host", activations="host"), 200, step,
               ["tier={}", f"precision.moments={moments}", "batch.global=8"], steps=3, ranks=2, layers=40, most_layers="strategy.3")


def four_gpus(clip):
    return Row("llama-8b-offload", zero(4, 3) + offload(**EVERYTHING), 60, 2.5,
               ["batch.global=16", "run.measure_comm=2", f"optimizer.clip={clip}"], ranks=4)


TRAINED |= {
    "70b": seventy_b("fp32", 25),
    "70b bf16 moments": seventy_b("bf16", 30),
    "70b 8-bit moments": seventy_b("8bit", 35),
    "four gpus": four_gpus(0),
    "four gpus within": four_gpus(1000),
    "four gpus beyond": four_gpus(0.001),
    "33b two gpus": Row("llama-33b-nvme", zero(2, 3) + offload(optimizer="device:30, host:70", activations="host"), 180, 20,
                        ["tier={}", "batch.global=16"], steps=3, ranks=2, layers=60),
}

# 20 steps of each beside the same without offload: what strategy offload is told, and what is changed in recipe and reference.
BREADTH_FIRST = ["batch.order=breadth_first", "optimizer.clip=1"]
ONE_PASS = ["batch.global=4"]
BITS = {
    "optimizer on the host": (dict(optimizer="host"), BREADTH_FIRST),
    "in the usual order": (dict(optimizer="host", parameters="host", activations="host"), CLIP),
    "and gradients": (dict(optimizer="host", gradients="host"), BREADTH_FIRST),
    "and parameters": (dict(optimizer="host", parameters="host"), BREADTH_FIRST),
    "activations alone": (dict(optimizer="device", activations="host"), BREADTH_FIRST),
    "everything on the host": (EVERYTHING, BREADTH_FIRST),
    "the same without clipping": (EVERYTHING, ONE_PASS),
    "the same with bf16 moments": (EVERYTHING, BREADTH_FIRST + ["precision.moments=bf16"]),
    "the same with a whole master": (EVERYTHING, BREADTH_FIRST + ["precision.master=fp32"]),
    "updates on the device": (dict(optimizer="host", update="device"), BREADTH_FIRST),
    "updates where it is quickest": (dict(optimizer="host", update="auto"), BREADTH_FIRST),
    "what does not fit": (dict(mode="auto"), BREADTH_FIRST),
    "optimizer on drives": (dict(optimizer="nvme"), BREADTH_FIRST),
    "in several places": (dict(optimizer="device:20, host:50, nvme:30", parameters="device:40, host:60"), BREADTH_FIRST),
    "everything on drives": (dict.fromkeys(EVERYTHING, "nvme"), BREADTH_FIRST),
    "everything on drives without clipping": (dict.fromkeys(EVERYTHING, "nvme"), ONE_PASS),
}
BITS_MODEL = ["model.layers=4", "model.hidden=1024", "model.heads=8", "model.kv_heads=2", "model.ffn=3584", "model.seq=512",
              "model.vocab=8192", "batch.global=8", "batch.micro=4"]
