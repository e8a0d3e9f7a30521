#!/usr/bin/env python3
"""Compares formats of 8 bits for Adam's moments by the loss of a small GPT, on the CPU in fp32:
tools/bench/moment_formats.py [--steps 500] [--seeds 3] [--beta2 0.95] [--formats a,b] [--text FOLDER]

Each format is a table of values, a scale for each block of 128 elements, and a rule of rounding; moments are decoded, updated and encoded
at each step, as a kernel does. Tensors of fewer than 4096 elements keep fp32. Text is the bytes of a folder's Markdown, weights and samples are
those of the seed. Prints a row a format: the mean loss of the last 50 steps by seed. `prun` is what `precision.moments = "8bit"` does
(prun/eight_bits.hpp). Needs torch."""

import argparse
import pathlib
import random
import statistics
import sys

import torch
import torch.nn.functional as F

BLOCK, LEAST = 128, 4096
LAYERS, WIDTH, HEADS, SEQ, BATCH = 4, 128, 4, 128, 4


def binades(exponents, mantissa=3):
    """Numbers below 2 of so many binades, evenly apart below the least; by half, so that 1 bounds them."""
    low = [m / 2**mantissa * 2.0 ** (1 - exponents) for m in range(2**mantissa)]
    high = [(1 + m / 2**mantissa) * 2.0**e for e in range(1 - exponents, 1) for m in range(2**mantissa)]
    return torch.tensor(low + high) / 2


def dynamic_tree(signed):
    """bitsandbytes' map: leading zeros are a decimal exponent, what is left is a fraction."""
    values = [0.0, 1.0]
    total = 7 if signed else 8
    for zeros in range(total):
        fraction = total - zeros - 1
        edges = [0.1 + 0.9 * i / 2**fraction for i in range(2**fraction + 1)]
        values += [10.0**-zeros * (a + b) / 2 for a, b in zip(edges, edges[1:])]
    return torch.tensor(sorted(values))


def symmetric(table):
    return torch.cat([-table.flip(0), table]).unique()


LINEAR, LINEAR_SIGNED = torch.arange(256) / 255, torch.arange(-127, 128) / 127
E4M3, E5M2 = binades(15), binades(31, 2)
# Of the first and the second moment a table each, whether rounding is by chance, whether scales are powers of two.
FORMATS = {
    "fp32": None,
    "prun": (symmetric(binades(15)), binades(31), True, True),
    "prun, to nearest": (symmetric(binades(15)), binades(31), False, True),
    "linear": (LINEAR_SIGNED, LINEAR, False, False),
    "linear, by chance": (LINEAR_SIGNED, LINEAR, True, False),
    "dynamic tree": (symmetric(dynamic_tree(True)), dynamic_tree(False), False, False),
    "dynamic tree, by chance": (symmetric(dynamic_tree(True)), dynamic_tree(False), True, False),
    "e4m3 for both": (symmetric(E4M3), E4M3, False, True),
    "e4m3 and e5m2": (symmetric(E4M3), E5M2, False, True),
}


def rounded(numbers, table, by_chance, powers, positive):
    """What is read back of what was written. `positive`: only 0 becomes 0, as where it is divided by, and only by chance."""
    blocks = numbers.view(-1, BLOCK)
    largest = blocks.abs().amax(1, keepdim=True)
    scale = 2.0 ** torch.ceil(torch.log2(largest / table[-1])) if powers else largest / table[-1]
    scale = torch.where(largest > 0, scale, torch.ones_like(scale))
    ratio = (blocks / scale).clamp(table[0].item(), table[-1].item())
    above = torch.searchsorted(table, ratio.contiguous()).clamp(1, table.numel() - 1)
    low, high = table[above - 1], table[above]
    share = (ratio - low) / (high - low)
    up = torch.rand_like(share) < share if by_chance else share > 0.5
    chosen = torch.where(up, high, low)
    if positive and by_chance:
        chosen = torch.where((ratio > 0) & (chosen == 0), table[1], chosen)
    return (chosen * scale).view_as(numbers)


class Adam:
    def __init__(self, parameters, form, betas, lr=1e-3, eps=1e-8, decay=0.1):
        self.groups = [[p for p in parameters if (p.numel() >= LEAST) == large] for large in (True, False)]
        self.moments = [[torch.zeros(sum(p.numel() for p in group)) for _ in range(2)] for group in self.groups]
        self.form, self.betas, self.lr, self.eps, self.decay, self.steps = form, betas, lr, eps, decay, 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        rate = [1 - beta**self.steps for beta in self.betas]
        for large, group, moments in zip((True, False), self.groups, self.moments):
            gradient = torch.cat([p.grad.flatten() for p in group])
            m, v = moments
            m.lerp_(gradient, 1 - self.betas[0])
            v.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])
            change = (m / rate[0]) / ((v / rate[1]).sqrt() + self.eps)
            for p, piece in zip(group, change.split([p.numel() for p in group])):
                if p.dim() > 1:
                    p.mul_(1 - self.lr * self.decay)
                p.add_(piece.view_as(p), alpha=-self.lr)
                p.grad = None
            if large and self.form:
                first, second, by_chance, powers = self.form
                moments[0] = rounded(m, first, by_chance, powers, False)
                moments[1] = rounded(v, second, by_chance, powers, True)


def weights(seed):
    made = torch.Generator().manual_seed(seed)
    draw = lambda *shape, std=0.02: (torch.randn(*shape, generator=made) * std).requires_grad_()
    deep = 0.02 / (2 * LAYERS) ** 0.5
    model = {"tokens": draw(256, WIDTH), "positions": draw(SEQ, WIDTH), "gain": torch.ones(WIDTH, requires_grad=True)}
    for i in range(LAYERS):
        model |= {f"{i}.gain1": torch.ones(WIDTH, requires_grad=True), f"{i}.gain2": torch.ones(WIDTH, requires_grad=True),
                  f"{i}.qkv": draw(3 * WIDTH, WIDTH), f"{i}.out": draw(WIDTH, WIDTH, std=deep),
                  f"{i}.up": draw(4 * WIDTH, WIDTH), f"{i}.down": draw(WIDTH, 4 * WIDTH, std=deep)}
    return model


def loss_of(model, tokens, targets):
    x = model["tokens"][tokens] + model["positions"]
    norm = lambda x, gain: F.layer_norm(x, (WIDTH,), gain)
    for i in range(LAYERS):
        q, k, v = (u.view(BATCH, SEQ, HEADS, -1).transpose(1, 2) for u in (norm(x, model[f"{i}.gain1"]) @ model[f"{i}.qkv"].T).split(WIDTH, -1))
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(BATCH, SEQ, WIDTH) @ model[f"{i}.out"].T
        x = x + F.gelu(norm(x, model[f"{i}.gain2"]) @ model[f"{i}.up"].T, approximate="tanh") @ model[f"{i}.down"].T
    return F.cross_entropy((norm(x, model["gain"]) @ model["tokens"].T).flatten(0, 1), targets.flatten())


def trained(form, seed, text, steps, beta2):
    torch.manual_seed(seed)
    model, draw, losses = weights(seed), random.Random(seed), []
    optimizer = Adam(list(model.values()), form, (0.9, beta2))
    for _ in range(steps):
        starts = [draw.randrange(len(text) - SEQ - 1) for _ in range(BATCH)]
        batch = torch.stack([text[start:start + SEQ + 1] for start in starts]).long()
        loss = loss_of(model, batch[:, :-1], batch[:, 1:])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return statistics.mean(losses[-50:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--beta2", type=float, default=0.95)
    parser.add_argument("--formats", help="of the table, with ; between them; all")
    parser.add_argument("--text", default="docs")
    arguments = parser.parse_args()
    wanted = arguments.formats.split(";") if arguments.formats else list(FORMATS)
    if unknown := [name for name in wanted if name not in FORMATS]:
        print(f"moment_formats: there is no format '{unknown[0]}'; there are {'; '.join(FORMATS)}", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    files = sorted(pathlib.Path(arguments.text).rglob("*.md"))
    text = torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8)
    print(f"| format, beta2 = {arguments.beta2:g} | loss by seed | mean |\n|---|---|---|", flush=True)
    for name in wanted:
        losses = [trained(FORMATS[name], seed, text, arguments.steps, arguments.beta2) for seed in range(1, arguments.seeds + 1)]
        print(f"| {name} | {', '.join(f'{loss:.3f}' for loss in losses)} | {statistics.mean(losses):.3f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
