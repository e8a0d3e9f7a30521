#!/usr/bin/env python3
"""The peer: a plain GPT-2 in PyTorch, on the CPU in fp32 as its users run it there, or on a GPU in bf16 autocast.

  torch_peer.py LAYERS HIDDEN HEADS SEQ VOCAB MICRO ACCUMULATE STEPS [cpu | eager | compiled | graph]

AdamW (fused on a GPU), clipping at 1.0, all cores. `graph` is the whole compiled step in one CUDA graph, update included.
Prints the median tokens/s of the steps after the first to warm up.
"""
import os, statistics, sys, time
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = (u.view(b, t, self.h, d // self.h).transpose(1, 2) for u in self.qkv(self.n1(x)).split(d, -1))
        if hasattr(F, "scaled_dot_product_attention"):
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            s = (q @ k.transpose(-2, -1)) / (d // self.h) ** 0.5
            o = s.masked_fill(mask[:t, :t], float("-inf")).softmax(-1) @ v
        x = x + self.proj(o.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, d, heads, seq, vocab):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(seq, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.register_buffer("mask", torch.ones(seq, seq, dtype=torch.bool).triu(1))

    def forward(self, x, y):
        h = self.tok(x) + self.pos.weight[: x.shape[1]]
        for block in self.blocks:
            h = block(h, self.mask)
        return F.cross_entropy(F.linear(self.norm(h), self.tok.weight).flatten(0, 1), y.flatten())


def train_step(model, opt, data, accumulate, device):
    for _ in range(accumulate):
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(data[:, :-1], data[:, 1:]) / accumulate
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad(set_to_none=True)


def captured(step):
    """The step as one CUDA graph; it has run some times before, on a stream of its own."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def seconds_of(step, steps, device):
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    layers, hidden, heads, seq, vocab, micro, accumulate, steps = map(int, sys.argv[1:9])
    mode = sys.argv[9] if len(sys.argv) > 9 else "cpu"
    device = "cpu" if mode == "cpu" else "cuda"
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    model = Gpt(layers, hidden, heads, seq, vocab).to(device)
    on_gpu = {"fused": True, "capturable": mode == "graph"} if device == "cuda" else {}
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, **on_gpu)
    if mode in ("compiled", "graph"):
        for block in model.blocks:
            block.compile()
    data = torch.randint(0, vocab, (micro, seq + 1), device=device)
    step = lambda: train_step(model, opt, data, accumulate, device)
    if mode == "graph":
        step = captured(step)
    seconds_of(step, 2 if mode == "cpu" else 10, device)
    seconds = seconds_of(step, steps, device)
    print(f"{micro * accumulate * seq / seconds:.1f} tokens/s, {1e3 * seconds:.2f} ms, {mode}, PyTorch {torch.__version__}, "
          f"{torch.get_num_threads()} threads")


main()
