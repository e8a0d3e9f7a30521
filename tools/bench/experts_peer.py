#!/usr/bin/env python3
"""Trains the shape of a model with experts in PyTorch on one GPU, as a user of transformers would, to measure beside `prun`:
tools/bench/experts_peer.py olmoe|qwen3|mixtral --layers N [--micro N] [--global N] [--seq N] [--steps N] [--no-compile]
Weights, gradients and AdamW's moments are in bf16, 8 bytes a parameter: two fewer than prun's split masters. Experts are transformers'
`grouped_mm`. Prints one line of JSON: the median step after the first three, tokens/s, memory."""

import argparse
import json
import statistics
import sys
import time

import torch
import transformers


def config(arguments):
    common = {"num_hidden_layers": arguments.layers, "max_position_embeddings": arguments.seq, "use_cache": False,
              "output_router_logits": True, "torch_dtype": torch.bfloat16}
    if arguments.model == "olmoe":
        return transformers.OlmoeConfig(hidden_size=2048, intermediate_size=1024, num_attention_heads=16, num_key_value_heads=16,
                                        num_experts=64, num_experts_per_tok=8, vocab_size=50304, **common)
    if arguments.model == "qwen3":
        return transformers.Qwen3MoeConfig(hidden_size=2048, moe_intermediate_size=768, num_attention_heads=32, num_key_value_heads=4,
                                           head_dim=128, num_experts=128, num_experts_per_tok=8, norm_topk_prob=True, vocab_size=151936,
                                           decoder_sparse_step=1, mlp_only_layers=[], **common)
    return transformers.MixtralConfig(hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8,
                                      num_local_experts=8, num_experts_per_tok=2, vocab_size=32000, sliding_window=None, **common)


def model_of(arguments):
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        made = transformers.AutoModelForCausalLM.from_config(config(arguments), attn_implementation="sdpa",
                                                             experts_implementation="grouped_mm")
    made.train()
    if arguments.compile:
        for layer in made.model.layers:
            layer.compile()
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["olmoe", "qwen3", "mixtral"])
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--micro", type=int, default=2)
    parser.add_argument("--global", type=int, default=16, dest="sequences")
    parser.add_argument("--seq", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--no-compile", action="store_false", dest="compile")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("experts_peer: skipped, there is no GPU here")
        return 0
    model = model_of(arguments)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-4, weight_decay=0.1, fused=True)
    pieces = arguments.sequences // arguments.micro
    tokens = torch.randint(0, model.config.vocab_size, (pieces, arguments.micro, arguments.seq), device="cuda")
    seconds = []
    for _ in range(arguments.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for piece in tokens:
            loss = model(input_ids=piece, labels=piece).loss / pieces
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    step = statistics.median(seconds[3:])
    print(json.dumps({"model": arguments.model, "layers": arguments.layers, "micro": arguments.micro, "compiled": arguments.compile,
                      "parameters": sum(p.numel() for p in model.parameters()), "ms": 1e3 * step,
                      "tokens_per_second": tokens.numel() / step, "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
                      "loss": pieces * loss.item(), "torch": torch.__version__, "transformers": transformers.__version__}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
