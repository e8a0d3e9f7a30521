#!/usr/bin/env python3
"""Trains adapters of Llama 3 8B's shape in PyTorch on one GPU, as a user of transformers and PEFT would, to measure beside `prun`:
tools/bench/lora_peer.py [--budget GIB] [--micro N] [--global N] [--seq N] [--rank N] [--steps N] [--compile] [--layers N] [--hidden N]
Weights are random, frozen and in bf16, adapters stand beside each linear layer but the head, in bf16 as well (PEFT's own wish is fp32,
which is slower), AdamW is fused, every layer is computed again in backward. Where there is no PEFT, adapters are written by hand, by its rule.
Prints one line of JSON: the median step after the first two, tokens/s, memory; exit code 3 where the budget does not hold it."""

import argparse
import json
import statistics
import sys
import time

import torch
import transformers

try:
    import peft
except ImportError:
    peft = None


class Adapted(torch.nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base, self.factor = base, alpha / rank
        like = {"bias": False, "device": base.weight.device, "dtype": base.weight.dtype}
        self.down, self.up = torch.nn.Linear(base.in_features, rank, **like), torch.nn.Linear(rank, base.out_features, **like)
        torch.nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x)) * self.factor


def adapted_by_hand(model, rank):
    model.requires_grad_(False)
    linear = [(name, module) for name, module in model.named_modules() if isinstance(module, torch.nn.Linear) and name != "lm_head"]
    for name, module in linear:
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, Adapted(module, rank, 2 * rank))
    return model


def adapted(model, rank):
    if peft is None:
        return adapted_by_hand(model, rank)
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM")
    return peft.get_peft_model(model, config, autocast_adapter_dtype=False)


def model_of(arguments, device):
    heads = arguments.hidden // 128
    config = transformers.LlamaConfig(hidden_size=arguments.hidden, intermediate_size=arguments.hidden * 7 // 2, num_attention_heads=heads,
                                      num_key_value_heads=max(1, heads // 4), num_hidden_layers=arguments.layers, vocab_size=128256,
                                      max_position_embeddings=arguments.seq, use_cache=False)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        made = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    made.train()
    made.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    layers = made.model.layers
    made = adapted(made, arguments.rank)
    if arguments.compile:
        for layer in layers:
            layer.compile()
    return made


def trained(model, tokens, steps, synchronize):
    """Seconds of each step, and the last loss."""
    trains = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trains, lr=2e-4, weight_decay=0.0, fused=True)
    seconds = []
    for _ in range(steps):
        synchronize()
        begin = time.perf_counter()
        for piece in tokens:
            loss = model(input_ids=piece, labels=piece).loss / len(tokens)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(trains, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize()
        seconds.append(time.perf_counter() - begin)
    return seconds, len(tokens) * loss.item(), sum(p.numel() for p in trains)


def in_use():
    free, total = torch.cuda.mem_get_info()
    return total - free


def limit_memory(gib):
    """The context takes its own of the budget, as it does of a card of this size."""
    torch.zeros(1, device="cuda")
    context = in_use() - torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction(min(1.0, (gib * 2**30 - context) / torch.cuda.get_device_properties(0).total_memory))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=24)
    for name, usual in (("micro", 1), ("seq", 2048), ("rank", 16), ("steps", 8), ("layers", 32), ("hidden", 4096)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--global", type=int, default=8, dest="sequences")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="of a small shape, to see that it runs")
    arguments = parser.parse_args()
    device = "cpu" if arguments.cpu else "cuda"
    if device == "cuda":
        limit_memory(arguments.budget)
    try:
        model = model_of(arguments, device)
        tokens = torch.randint(0, 128256, (arguments.sequences // arguments.micro, arguments.micro, arguments.seq), device=device)
        seconds, loss, adapters = trained(model, tokens, arguments.steps, torch.cuda.synchronize if device == "cuda" else lambda: None)
    except torch.OutOfMemoryError:
        print(json.dumps({"micro": arguments.micro, "failed": f"does not fit {arguments.budget:g} GiB"}))
        return 3
    step = statistics.median(seconds[2:])
    print(json.dumps({"micro": arguments.micro, "compiled": arguments.compile, "adapters": adapters, "ms": 1e3 * step,
                      "tokens_per_second": tokens.numel() / step, "loss": loss, "gib_in_use": in_use() / 2**30 if device == "cuda" else None,
                      "gib_of_tensors": torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None,
                      "by": f"PEFT {peft.__version__}" if peft else "hand", "torch": torch.__version__, "transformers": transformers.__version__}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
