#!/usr/bin/env python3
"""Times PyTorch's flex_attention as tools/bench/cuda_attention.cpp times attention of long sequences: bf16, 32 heads of
queries on 8 of keys, 128 channels, a window of 1,024 positions, and all of them.

  tools/bench/flex_attention.py [SEQ...]        # 4096 to 65536

A line is: positions, window (0: none), milliseconds of forward, and of backward.
"""
import sys
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

HEADS, GROUPS, WIDTH, WINDOW, TURNS = 32, 8, 128, 1024, 20


def milliseconds(run):
    for _ in range(3): run()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(TURNS): run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / TURNS


def time(seq, window, attend):
    def seen(batch, head, query, key):
        return (key <= query) & (key > query - window) if window else key <= query

    mask = create_block_mask(seen, None, None, seq, seq)
    q, k, v = (torch.randn(1, heads, seq, WIDTH, device="cuda", dtype=torch.bfloat16, requires_grad=True)
               for heads in (HEADS, GROUPS, GROUPS))
    forward = lambda: attend(q, k, v, block_mask=mask, enable_gqa=True)
    y = forward()
    dy = torch.randn_like(y)
    backward = lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True)
    return milliseconds(forward), milliseconds(backward)


attend = torch.compile(flex_attention, dynamic=False)
for seq in map(int, sys.argv[1:] or [4096, 8192, 16384, 32768, 65536]):
    for window in (WINDOW, 0):
        print(seq, window, *(f"{ms:.3f}" for ms in time(seq, window, attend)), flush=True)
