"""What prun is asked for: its words, what it reads and what it writes, in a folder that example() has filled."""

import dataclasses

RECIPE = """[run]
name = "tiny"
steps = 3
seed = 1
save_every = 1
out = "run"

[model]
plugin = "gpt"
layers = 1
hidden = 16
heads = 2
seq = 16
vocab = 256

[data]
plugin = "text"
path = "text.txt"
validation = 0.2

[batch]
global = 4
micro = 2

[mesh]
dp = RANKS

[[strategy]]
plugin = "data"
axis = "dp"

[optimizer]
plugin = "adamw"
lr = 1e-3

[device]
plugin = "cpu"
threads = 1

[[observer]]
plugin = "console"

[[observer]]
plugin = "jsonl"
"""
DEEPSPEED = """{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0,
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
 "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 10, "total_num_steps": 100}},
 "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": true}}
"""
MEGATRON = """#!/bin/bash
LAYERS=2
torchrun --nproc_per_node 2 pretrain_gpt.py \\
  --num-layers $LAYERS --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 \\
  --micro-batch-size 2 --global-batch-size 8 --lr 1e-4 --train-iters 10 --clip-grad 1.0 --bf16 \\
  --tensor-model-parallel-size 2 --data-path "my data" --save "ckpt"
"""
TORCHTITAN = """[model]
name = "llama3"
flavor = "8B"

[optimizer]
name = "AdamW"
lr = 3e-4

[training]
local_batch_size = 1
seq_len = 2048
steps = 10
dataset = "c4"

[parallelism]
data_parallel_shard_degree = 2
"""


@dataclasses.dataclass(frozen=True)
class Verb:
    name: str
    words: tuple
    reads: tuple = ()
    writes: str = ""  # a place that is not there before
    tells: bool = False  # what is not good is its result, on standard output
    differs: bool = False  # exit code 1 says that there is a difference
    goes_on: bool = False  # a run, which its checkpoints resume


RUN = tuple("run/" + name for name in ("latest", "run.id", "log.jsonl", "recipe.toml", "plugins.json", "run.lock", "failures.log"))
CKPT = tuple("run/step-00000003/" + name for name in ("manifest.json", "rank-00000.safetensors"))
HF = ("hf/config.json", "hf/model.safetensors")
TRAIN = ("r.toml", "--set", "run.out=new")
STEPS = ("--set", "run.steps=3")


def sets(**values):
    return tuple(word for key, value in values.items() for word in ("--set", key.replace("_", ".", 1) + "=" + str(value)))


VERBS = [
    Verb("run", TRAIN + STEPS, ("r.toml", "text.txt"), "new"),
    Verb("run", TRAIN + ("--set", "run.steps=40"), (), "new", goes_on=True),
    Verb("resume", TRAIN + sets(run_resume="run", run_steps=5), RUN + CKPT, "new"),
    Verb("resume there", ("r.toml",) + sets(run_resume="run", run_steps=5), RUN + CKPT),
    Verb("run tokens", TRAIN + STEPS + sets(data_plugin="tokens", data_path="tok", model_vocab=1024), ("tok.bin", "tok.idx"), "new"),
    Verb("run init", TRAIN + STEPS + sets(model_init="hf"), HF, "new"),
    Verb("run init ckpt", TRAIN + STEPS + sets(model_init="imp"), ("imp/manifest.json", "imp/rank-00000.safetensors"), "new"),
    Verb("check", ("check", "r.toml"), ("r.toml", "text.txt"), tells=True),
    Verb("plan", ("plan", "r.toml", "--costs", "costs.json"), ("r.toml", "costs.json")),
    Verb("verify", ("verify", "r.toml", "--steps", "1"), ("r.toml", "text.txt"), tells=True, differs=True),
    Verb("trace", ("trace", "r.toml", "--steps", "1", "--out", "new.json"), ("r.toml",), "new.json"),
    Verb("trace simulated", ("trace", "r.toml", "--simulated", "--costs", "costs.json", "--out", "new.json"), ("r.toml", "costs.json"), "new.json"),
    Verb("bench kernels", ("bench", "kernels", "r.toml", "--no-grid", "--out", "costs.json"), ("r.toml", "costs.json")),
    Verb("bench io", ("bench", "io", "hf", "--file-size", "4MiB", "--stripe", "1024", "--depth", "4", "--out", "costs.json"), ("costs.json",)),
    Verb("bench zero", ("bench", "zero", "r.toml", "--setting", "0", "--steps", "1", "--out", "new.json"), ("r.toml",), "new.json"),
    Verb("eval", ("eval", "run", "--batches", "1"), RUN + CKPT + ("text.txt",)),
    Verb("generate", ("generate", "run", "the", "--max-tokens", "4"), RUN + CKPT),
    Verb("generate tokenizer", ("generate", "run", "the", "--max-tokens", "4", "--tokenizer", "tokenizer.json"), ("tokenizer.json",)),
    Verb("ckpt ls", ("ckpt", "ls", "run"), RUN + CKPT, tells=True),
    Verb("ckpt show", ("ckpt", "show", "run"), RUN + CKPT),
    Verb("ckpt show recipe", ("ckpt", "show", "run", "--recipe"), CKPT),
    Verb("ckpt verify", ("ckpt", "verify", "run"), RUN + CKPT, tells=True),
    Verb("ckpt diff", ("ckpt", "diff", "run/step-00000003", "run/step-00000002"), CKPT, tells=True, differs=True),
    Verb("ckpt reshard", ("ckpt", "reshard", "run", "new"), RUN + CKPT, "new"),
    Verb("ckpt prune", ("ckpt", "prune", "run", "--keep", "1"), RUN + CKPT),
    Verb("tokenize", ("tokenize", "tokenizer.json", "text.txt", "--out", "new", "--threads", "1"), ("tokenizer.json", "text.txt"), "new.bin"),
    Verb("tokenize lines", ("tokenize", "tokenizer.json", "lines.jsonl", "--out", "new", "--threads", "1"), ("lines.jsonl",), "new.bin"),
    Verb("import", ("import", "hf", "--out", "new"), HF, "new"),
    Verb("export", ("export", "run", "--out", "new"), RUN + CKPT, "new"),
    Verb("convert", ("convert", "ds.json", "--out", "new.toml"), ("ds.json",), "new.toml"),
    Verb("convert", ("convert", "ds.json", "--model", "hf/config.json"), ("ds.json", "hf/config.json")),
    Verb("convert", ("convert", "megatron.sh"), ("megatron.sh",)),
    Verb("convert", ("convert", "titan.toml"), ("titan.toml",)),
    Verb("runs", ("runs", "."), RUN, tells=True),
    Verb("runs json", ("runs", ".", "--json"), RUN, tells=True),
    Verb("watch", ("watch", "run"), RUN, tells=True),
    Verb("diff", ("diff", "run", "run2"), RUN + CKPT, tells=True, differs=True),
    Verb("report", ("report", "run", "--out", "new.html"), RUN, "new.html"),
    Verb("report recipe", ("report", "r.toml", "--out", "new.html"), ("r.toml",), "new.html"),
    Verb("explain", ("explain", "model.heads", "r.toml"), ("r.toml",)),
    Verb("ops list", ("ops", "list", "r.toml"), ("r.toml",)),
    Verb("plugins check", ("plugins", "check", "plugin.so"), ("plugin.so",), tells=True),
    Verb("init", ("init", "--model", "hf/config.json", "--data", "text.txt", "--out", "new.toml"), ("hf/config.json", "text.txt"), "new.toml"),
    Verb("doctor", ("doctor", "r.toml"), ("r.toml",), tells=True),
]
WRITERS = ("run", "resume", "resume there", "export", "import", "ckpt reshard", "ckpt prune", "tokenize", "report", "verify", "eval", "generate")


def example(folder, source, prun):
    """Fills `folder`, and says the loss of each number of steps that a run comes to undisturbed, by ranks."""
    (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog.\n" * 60)
    (folder / "lines.jsonl").write_text('{"text": "one line"}\n{"text": "another line"}\n' * 20)
    (folder / "ds.json").write_text(DEEPSPEED)
    (folder / "megatron.sh").write_text(MEGATRON)
    (folder / "titan.toml").write_text(TORCHTITAN)
    (folder / "tokenizer.json").write_bytes((source / "tests/fixtures/tokenizer/gpt2.json").read_bytes())
    (folder / "r.toml").write_text(RECIPE.replace("RANKS", "2"))
    for words in (("r.toml",), ("r.toml",) + sets(run_out="run2", run_seed=2), ("export", "run", "--out", "hf"),
                  ("import", "hf", "--out", "imp"), ("tokenize", "tokenizer.json", "text.txt", "--out", "tok"),
                  ("bench", "kernels", "r.toml", "--no-grid", "--out", "costs.json")):
        prun(words)
