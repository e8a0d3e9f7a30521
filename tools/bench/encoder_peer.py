#!/usr/bin/env python3
"""Trains the shape of configs/bert-base.toml or configs/t5-base.toml in PyTorch on one GPU, as a user of transformers would, to measure
beside `prun`:
tools/bench/encoder_peer.py bert|t5 [--micro N] [--global N] [--steps N] [--compile]
Weights and AdamW's moments are in fp32, products in bf16 by autocast, gradients are clipped. Prints one line of JSON: the median step
after the first five, tokens/s (of T5 those of encoder and decoder), memory."""

import argparse
import json
import statistics
import time

import torch
import transformers

ENCODER, DECODER = 512, 114  # positions of t5-base.toml


def bert():
    config = transformers.BertConfig(vocab_size=257, max_position_embeddings=512, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return transformers.BertForMaskedLM._from_config(config, attn_implementation="sdpa")


def t5():
    config = transformers.T5Config(vocab_size=288, d_model=768, d_kv=64, d_ff=2048, num_layers=12, num_heads=12, dropout_rate=0.0,
                                   feed_forward_proj="gated-gelu", tie_word_embeddings=False, use_cache=False,
                                   decoder_start_token_id=0, pad_token_id=0)
    return transformers.T5ForConditionalGeneration(config)


def batch_of(model, micro):
    def random(vocab, length):
        return torch.randint(0, vocab, (micro, length), device="cuda")

    if model == "t5":
        return {"input_ids": random(288, ENCODER), "labels": random(288, DECODER)}
    labels = random(257, 512)
    labels[torch.rand(labels.shape, device="cuda") > 0.15] = -100
    return {"input_ids": random(257, 512), "labels": labels}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["bert", "t5"])
    parser.add_argument("--micro", type=int, default=32)
    parser.add_argument("--global", type=int, default=32, dest="sequences")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--compile", action="store_true")
    arguments = parser.parse_args()
    model = (bert() if arguments.model == "bert" else t5()).cuda().train()
    trained = torch.compile(model) if arguments.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batch = batch_of(arguments.model, arguments.micro)
    times = []
    for _ in range(arguments.steps):
        torch.cuda.synchronize()
        begin = time.time()
        parts = arguments.sequences // arguments.micro
        for _ in range(parts):
            with torch.autocast("cuda", torch.bfloat16):
                loss = trained(**batch).loss / parts
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.time() - begin)
    step = statistics.median(times[5:])
    length = ENCODER + DECODER if arguments.model == "t5" else 512
    print(json.dumps({"model": arguments.model, "micro": arguments.micro, "compiled": arguments.compile, "ms": 1e3 * step,
                      "tokens_per_second": arguments.sequences * length / step,
                      "gib": torch.cuda.max_memory_allocated() / 2**30, "loss": loss.item()}))


if __name__ == "__main__":
    main()
