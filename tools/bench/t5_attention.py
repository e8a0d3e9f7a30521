#!/usr/bin/env python3
"""Times T5-base's attention on a GPU, forward and backward, in bf16: prun's kernels on tensor cores beside its general ones and beside
PyTorch's scaled_dot_product_attention, whose bias is a mask that is added. PyTorch's column is empty where it is not installed.

  tools/bench/t5_attention.py [FOLDER OF cuda_attention]      # build/bin

A ratio above 1 says that the kernels on tensor cores are faster. PyTorch's bias is spread out before it is timed, and its gradient is that
of every score: sums by bucket, which prun's time includes, would come on top.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

BATCH, HEADS, WIDTH, TURNS = 32, 12, 64, 20


def of_prun(folder):
    with tempfile.TemporaryDirectory() as results:
        file = pathlib.Path(results) / "t5.json"
        subprocess.run([folder / "cuda_attention", "T5", file], check=True, stdout=subprocess.DEVNULL)
        return [row for row in json.loads(file.read_text()) if "attention" in row]


def microseconds(torch, run):
    for _ in range(3): run()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(TURNS): run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1000 / TURNS


def of_torch(name, queries, keys):
    """Microseconds of forward and of backward."""
    try:
        import torch
    except ImportError:
        return None
    from torch.nn.functional import scaled_dot_product_attention as attend

    def random(heads_of, *dims):
        return torch.randn(heads_of, HEADS, *dims, device="cuda", dtype=torch.bfloat16)

    q, k, v = (random(BATCH, length, WIDTH).requires_grad_() for length in (queries, keys, keys))
    inputs, bias = [q, k, v], None
    if "across" not in name:
        bias = random(1, queries, keys)
        if "decoder" in name:
            bias += torch.full((queries, keys), -torch.inf, device="cuda").triu(1)
        inputs.append(bias.requires_grad_())
    forward = lambda: attend(q, k, v, attn_mask=bias)
    y = forward()
    dy = torch.randn_like(y)
    backward = lambda: torch.autograd.grad(y, inputs, dy, retain_graph=True)
    return microseconds(torch, forward), microseconds(torch, backward)


def keys_of(name, queries):
    return int(name.rsplit(" ", 1)[1]) if "across" in name else queries


def main():
    rows = of_prun(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/bin"))
    print("| attention | which | general, µs | tensor cores, µs | ratio | PyTorch, µs | ratio |", "|---|---|---|---|---|---|---|", sep="\n")
    for name in dict.fromkeys(row["attention"] for row in rows):
        mine = [row for row in rows if row["attention"] == name]
        queries = int(mine[0]["batch×seq"].split("×")[1])
        peers = of_torch(name, queries, keys_of(name, queries))
        for turn, which in enumerate(("forward", "backward")):
            times = {row["kernel"]: row["µs"] for row in mine if row["which"] == which}
            chosen = next(time for kernel, time in times.items() if kernel.endswith("*"))
            peer = f"{peers[turn]:.0f} | {peers[turn] / chosen:.2f}" if peers else " | "
            print(f"| {name} | {which} | {times['prun']:.0f} | {chosen:.0f} | {times['prun'] / chosen:.2f} | {peer} |", flush=True)


if __name__ == "__main__":
    main()
