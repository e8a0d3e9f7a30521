// prun convert, as a user starts it, on configurations that say what public ones say: the same settings and
// values, written here, each with the file that has them.
#include <gtest/gtest.h>

#include <fstream>

#include "binary.hpp"
#include "support/assembly_fixture.hpp"

namespace prun::test {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

std::string file_of(const std::string& name, const std::string& text) {
  const fs::path path = temporary_folder() / name;
  std::ofstream(path) << text;
  return path.string();
}

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words sets(const Words& values) {
  Words words;
  for (const std::string& value : values) words.insert(words.end(), {"--set", value});
  return words;
}

// What DeepSpeed leaves to its script: a small model, and text to train on.
const Words small_model = {"model.plugin=gpt", "model.layers=2",   "model.hidden=64",
                           "model.heads=4",    "model.vocab=256",  "model.seq=32",
                           "run.steps=10",     "data.plugin=text", "data.path=" PRUN_SOURCE_DIR "/docs"};
const Words text = {"data.plugin=text", "data.path=" PRUN_SOURCE_DIR "/docs"};
// A size that plans in no time, where only the layout is of interest.
const Words narrow = {"model.hidden=128", "model.heads=8", "model.ffn=256", "model.vocab=1024",
                      "model.seq=64"};

struct Case {
  std::string name, config;
  Words options;           // of convert
  Words says;              // lines of the recipe, without their comments
  Words refused, unknown;  // by name, all of them
  Words shrink = {};       // values that check gets, so that it ends soon
};

Words names_under(const std::string& out, const std::string& heading) {
  Words names;
  std::size_t at = out.find(heading + "\n");
  if (at == std::string::npos) return names;
  for (at = out.find('\n', at) + 1; out.compare(at, 2, "  ") == 0; at = out.find('\n', at) + 1)
    names.push_back(out.substr(at + 2, out.find(" = ", at) - at - 2));
  return names;
}

// Whether a line of the recipe says just this.
bool has_line(const std::string& recipe, const std::string& line) {
  return recipe.find("\n" + line + " ") != std::string::npos;
}

void expect_converted(const Case& each) {
  const std::string recipe = (temporary_folder() / "recipe.toml").string();
  const Result converted =
      prun(with({"convert", file_of(each.name, each.config), "--out", recipe}, each.options));
  ASSERT_EQ(converted.code, 0) << converted.out;
  std::stringstream written;
  written << std::ifstream(recipe).rdbuf();
  for (const std::string& line : each.says)
    EXPECT_TRUE(has_line(written.str(), line)) << line << "\n" << written.str();
  EXPECT_EQ(names_under(converted.out, "Not carried over:"), each.refused) << converted.out;
  EXPECT_EQ(names_under(converted.out, "Unknown, and not carried over:"), each.unknown) << converted.out;
  const Result check = prun(with({"check", recipe}, sets(each.shrink)));
  EXPECT_EQ(check.code, 0) << check.out << written.str();
  const Result plan = prun(with({"plan", recipe}, sets(each.shrink)));
  EXPECT_EQ(plan.code, 0) << plan.out;
}

// ------------------------------------------------------------------- DeepSpeed

TEST(ConvertDeepSpeed, RanksThatShareASequenceDoSo) {
  expect_converted(
      {"sp.json",
       R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2,
                        "sequence_parallel_size": 4, "zero_optimization": {"stage": 1}})",
       with({"--ranks", "8"}, sets(with(small_model, {"optimizer.plugin=adamw", "optimizer.lr=1e-4"}))),
       {"dp = 2", "cp = 4", "global = 4", "micro = 1", "stage = 1", "plugin = \"context\"",
        "axis = [\"dp\", \"cp\"]"},
       {},
       {}});
}

// Its folder is there in most configurations, and says nothing where it is switched off.
TEST(ConvertDeepSpeed, TensorboardCountsWhereItIsSwitchedOn) {
  for (const bool on : {true, false}) {
    const std::string recipe = (temporary_folder() / "board.toml").string();
    const std::string config =
        std::string(R"({"train_micro_batch_size_per_gpu": 1, "tensorboard": {"enabled": )") +
        (on ? "true" : "false") + R"(, "output_path": "boards", "job_name": "a"}})";
    const Result converted =
        prun(with({"convert", file_of("board.json", config), "--out", recipe, "--ranks", "1"},
                  sets(with(small_model, {"optimizer.plugin=adamw", "optimizer.lr=1e-4"}))));
    ASSERT_EQ(converted.code, 0) << converted.out;
    std::stringstream written;
    written << std::ifstream(recipe).rdbuf();
    EXPECT_EQ(has_line(written.str(), "path = \"boards\""), on) << written.str();
    EXPECT_EQ(has_line(written.str(), "plugin = \"tensorboard\""), on) << written.str();
  }
}

TEST(ConvertDeepSpeed, WandbBecomesAnOfflineRun) {
  const std::string recipe = (temporary_folder() / "wandb.toml").string();
  const std::string config =
      R"({"train_micro_batch_size_per_gpu": 1, "wandb": {"enabled": true, "project": "mine", "team": "us"}})";
  const Result converted =
      prun(with({"convert", file_of("wandb.json", config), "--out", recipe, "--ranks", "1"},
                sets(with(small_model, {"optimizer.plugin=adamw", "optimizer.lr=1e-4"}))));
  ASSERT_EQ(converted.code, 0) << converted.out;
  std::stringstream written;
  written << std::ifstream(recipe).rdbuf();
  EXPECT_TRUE(has_line(written.str(), "plugin = \"wandb\"")) << written.str();
  EXPECT_TRUE(has_line(written.str(), "project = \"mine\"")) << written.str();
}

// microsoft/Megatron-DeepSpeed, ds_config.json
TEST(ConvertDeepSpeed, Stage3WithTheOptimizerOnTheHost) {
  expect_converted(
      {"ds_config.json",
       R"({
    "train_batch_size": 16, "train_micro_batch_size_per_gpu": 16, "steps_per_print": 1, "gradient_accumulation_steps": 1,
    "zero_optimization": {"stage": 3, "stage3_max_live_parameters": 3e9, "stage3_max_reuse_distance": 3e9,
      "stage3_param_persistence_threshold": 1e5, "stage3_prefetch_bucket_size": 5e7, "contiguous_gradients": true,
      "overlap_comm": true, "reduce_bucket_size": 90000000, "sub_group_size": 1e9,
      "offload_optimizer": {"device": "cpu", "buffer_count": 4, "pipeline_read": false, "pipeline_write": false, "pin_memory": true}},
    "gradient_clipping": 1.0,
    "fp16": {"enabled": true, "initial_scale_power": 15, "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1},
    "wall_clock_breakdown": true, "zero_allow_untested_optimizer": true,
    "aio": {"block_size": 1048576, "queue_depth": 16, "single_submit": false, "overlap_events": true, "thread_count": 2}})",
       sets(with(small_model, {"optimizer.plugin=adamw", "optimizer.lr=1e-4"})),
       {"global = 16", "micro = 16", "clip = 1.0", "every = 1", "optimizer = \"host\"", "compute = \"fp16\"",
        "rule = \"deepspeed\"", "initial = 32768.0", "window = 1000", "hysteresis = 2", "least = 1"},
       {},
       {}});
}

// microsoft/Megatron-DeepSpeed, ds_zero2_config_bf16.json
TEST(ConvertDeepSpeed, Stage2InBf16) {
  expect_converted({"ds_zero2_config_bf16.json",
                    R"({
    "train_batch_size": 96, "gradient_accumulation_steps": 1, "steps_per_print": 1,
    "optimizer": {"type": "Adam", "params": {"lr": 0.00015, "weight_decay": 1e-2}},
    "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": true, "communication_data_type": "bfp16",
    "gradient_clipping": 1.0,
    "fp16": {"enabled": false, "loss_scale": 0, "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1},
    "bfloat16": {"enabled": true, "loss_scale": 1.0},
    "activation_checkpointing": {"partition_activations": true, "contiguous_memory_optimization": false},
    "wall_clock_breakdown": false,
    "flops_profiler": {"enabled": true, "profile_step": -1, "module_depth": -1, "top_modules": 1, "detailed": true, "output_file": null}})",
                    with({"--ranks", "8"}, sets(small_model)),
                    {"micro = 12", "dp = 8", "stage = 2", "reduce = \"bf16\"", "betas = [0.9, 0.999]",
                     "weight_decay = 0.01", "lr = 0.00015"},
                    {"activation_checkpointing.partition_activations"},
                    {}});
}

TEST(ConvertDeepSpeed, ExchangesInCodesAreThoseOfParts) {
  const std::string of_stage = R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
    "zero_optimization": {"zero_quantized_weights": true, "zero_quantized_gradients": true, "stage": )";
  const Words options = with({"--ranks", "4"}, sets(small_model));
  expect_converted({"zeropp.json",
                    of_stage + "3}}",
                    options,
                    {"stage = 3", "gather = \"int8\"", "reduce = \"int4\""},
                    {},
                    {}});
  expect_converted({"zeropp2.json",
                    of_stage + "2}}",
                    options,
                    {"stage = 2", "reduce = \"int4\""},
                    {"zero_optimization.zero_quantized_weights"},
                    {}});
}

// microsoft/DeepSpeedExamples, Megatron-LM-v1.1.5-ZeRO3/examples/ds_zero_stage_infinity_config.json
TEST(ConvertDeepSpeed, ZeroInfinityWithItsMisspeltKey) {
  const std::string drive = (temporary_folder() / "nvme_data").string();
  fs::create_directories(drive);
  expect_converted(
      {"ds_zero_stage_infinity_config.json",
       R"({
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "steps_per_print": 1,
    "zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e9, "stage3_param_persitance_threshold": 1e5,
      "contiguous_gradients": true, "overlap_comm": true, "sub_group_size": 1e8,
      "offload_optimizer": {"device": "nvme", "nvme_path": ")" +
           drive + R"(", "buffer_count": 4, "pin_memory": true},
      "offload_param": {"device": "nvme", "nvme_path": ")" +
           drive + R"(", "max_in_cpu": 1, "pin_memory": true}},
    "gradient_clipping": 1.0, "fp16": {"enabled": true, "loss_scale": 1024}, "zero_allow_untested_optimizer": false,
    "aio": {"block_size": 1048576, "queue_depth": 8, "thread_count": 2}})",
       with({"--ranks", "2"}, sets(with(small_model, {"optimizer.plugin=adamw", "optimizer.lr=1e-4"}))),
       {"global = 8", "stage = 3", "optimizer = \"nvme\"", "parameters = \"nvme\"",
        "paths = [\"" + drive + "\"]", "depth = 8", "stripe_kib = 1024", "rule = \"static\"",
        "initial = 1024"},
       {"zero_optimization.offload_param.max_in_cpu"},
       {}});
  // A cluster's folder is not here: a plan for that machine says what its drives have.
  const std::string recipe = (temporary_folder() / "recipe.toml").string();
  const Words elsewhere = {"plan", recipe, "--set", "tier.nvme.paths=/no/such/drive"};
  const Result refused = prun(elsewhere);
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_NE(refused.out.find("tier.nvme.plan_gib"), std::string::npos) << refused.out;
  EXPECT_EQ(prun(with(elsewhere, {"--set", "tier.nvme.plan_gib=100"})).code, 0);
}

// ZeRO-Offload++ updates a part of the parameters on the host.
TEST(ConvertDeepSpeed, APartOfTheOptimizerOnTheHost) {
  expect_converted(
      {"ds_config.json",
       R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.3, "pin_memory": true}}})",
       with({"--ranks", "2"}, sets(with(small_model, {"optimizer.plugin=adamw", "optimizer.lr=1e-4"}))),
       {"optimizer = \"host:30, device:70\""},
       {},
       {}});
}

TEST(ConvertDeepSpeed, DrivesWithoutAFolderAreAskedFor) {
  const std::string config = R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}})";
  const Words others =
      sets(with(small_model, {"optimizer.plugin=adamw", "optimizer.lr=1e-4", "precision.compute=bf16"}));
  const Result asks = prun(with({"convert", file_of("drive.json", config)}, others));
  EXPECT_EQ(asks.code, 2);
  EXPECT_NE(asks.out.find("--set tier.nvme.paths=FOLDER"), std::string::npos) << asks.out;
  const std::string drive = (temporary_folder() / "drive").string();
  fs::create_directories(drive);
  expect_converted({"drive.json",
                    config,
                    with(others, sets({"tier.nvme.paths=" + drive})),
                    {"parameters = \"nvme\"", "optimizer = \"host\"", "paths = [\"" + drive + "\"]"},
                    {},
                    {}});
}

TEST(ConvertDeepSpeed, CheckpointsOnTheHostAndTheStepsOfItsSchedule) {
  expect_converted(
      {"cpu_checkpointing.json",
       R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2,
    "bf16": {"enabled": true}, "zero_optimization": {"stage": 0},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 10, "total_num_steps": 77, "warmup_type": "linear"}},
    "activation_checkpointing": {"cpu_checkpointing": true, "partition_activations": true}})",
       sets({"model.plugin=gpt", "model.layers=2", "model.hidden=64", "model.heads=4", "model.vocab=256",
             "model.seq=32", "data.plugin=text", "data.path=" PRUN_SOURCE_DIR "/docs"}),
       {"steps = 77", "schedule.steps = 77", "mode = \"full\"", "activations = \"host\"",
        "optimizer = \"device\""},
       {},
       {}});
}

// microsoft/DeepSpeedExamples, Megatron-LM/scripts/ds_zero-offload_10B_config.json
TEST(ConvertDeepSpeed, OffloadAsItWasFirstSpelt) {
  expect_converted({"ds_zero-offload_10B_config.json",
                    R"({
    "train_batch_size": 30, "gradient_accumulation_steps": 3, "steps_per_print": 1,
    "zero_optimization": {"stage": 2, "cpu_offload": true, "comm_overlap": true, "contiguous_gradients": true, "reduce_bucket_size": 50000000},
    "optimizer": {"type": "Adam", "params": {"lr": 0.00015}}, "gradient_clipping": 1.0,
    "fp16": {"enabled": true, "loss_scale": 4096, "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1},
    "activation_checkpointing": {"partition_activations": true, "contiguous_memory_optimization": true, "cpu_checkpointing": true},
    "wall_clock_breakdown": false})",
                    with({"--ranks", "2"}, sets(small_model)),
                    {"global = 30", "micro = 5", "stage = 2", "optimizer = \"host\"", "weight_decay = 0",
                     "activations = \"host\"", "mode = \"full\"", "rule = \"static\"", "initial = 4096"},
                    {},
                    {}});
}

// microsoft/DeepSpeedExamples, bing_bert/deepspeed_bsz64k_lamb_config_seq128.json
TEST(ConvertDeepSpeed, AnOptimizerThatThereIsNotIsAskedFor) {
  const std::string lamb = R"({
    "train_batch_size": 65536, "train_micro_batch_size_per_gpu": 64, "steps_per_print": 100, "prescale_gradients": false,
    "optimizer": {"type": "Lamb", "params": {"lr": 11e-3, "weight_decay": 0.01, "bias_correction": false, "max_coeff": 0.3, "min_coeff": 0.01}},
    "gradient_clipping": 1.0, "wall_clock_breakdown": false, "fp16": {"enabled": true, "loss_scale": 0},
    "sparse_attention": {"mode": "fixed", "block": 16, "attention": "bidirectional"}})";
  const Result asks = prun({"convert", file_of("lamb.json", lamb), "--ranks", "64"});
  EXPECT_EQ(asks.code, 2);
  EXPECT_NE(asks.out.find("--set optimizer.plugin=adamw"), std::string::npos) << asks.out;
  expect_converted({"lamb.json",
                    lamb,
                    with({"--ranks", "64"}, sets(with(small_model, {"optimizer.plugin=adamw"}))),
                    {"global = 65536", "micro = 64", "lr = 0.011"},
                    {"optimizer.type", "optimizer.params.weight_decay", "optimizer.params.bias_correction",
                     "optimizer.params.max_coeff", "optimizer.params.min_coeff", "sparse_attention.mode",
                     "sparse_attention.block", "sparse_attention.attention"},
                    {},
                    {"batch.global=1024", "batch.micro=16"}});
}

// huggingface/transformers, tests/deepspeed/ds_config_zero3.json
TEST(ConvertDeepSpeed, ASchedulersPeakStandsAboveTheOptimizers) {
  expect_converted(
      {"ds_config_zero3.json",
       R"({
    "fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2, "min_loss_scale": 1},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true},
      "offload_param": {"device": "cpu", "pin_memory": true}, "overlap_comm": true, "contiguous_gradients": true,
      "sub_group_size": 1e14, "reduce_bucket_size": 0, "stage3_gather_fp16_weights_on_model_save": true},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "betas": [0.8, 0.999], "eps": 1e-8, "weight_decay": 3e-7}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 3e-5, "warmup_num_steps": 500}},
    "steps_per_print": 2000, "wall_clock_breakdown": false})",
       with({"--ranks", "2"}, sets(with(small_model, {"batch.global=8", "batch.micro=4"}))),
       {"betas = [0.8, 0.999]", "lr = 0.00003", "schedule.kind = \"constant\"", "schedule.warmup = 500",
        "parameters = \"host\"", "every = 2000", "compute = \"fp16\"", "initial = 65536.0"},
       {"scheduler.params.warmup_type"},
       {}});
}

// huggingface/transformers, tests/deepspeed/ds_config_zero2.json; hiyouga/LLaMA-Factory,
// examples/deepspeed/ds_z3_config.json
TEST(ConvertDeepSpeed, WhatIsAutoIsAskedFor) {
  const std::string config = R"({
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto", "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_gather_16bit_weights_on_model_save": true},
    "comms_config": {"verbose": false},
    "monitor_config": {"enabled": true, "tag": "DeepSpeedMonitor", "csv_monitor": {"enabled": false}}})";
  const Result asks = prun(with({"convert", file_of("z3.json", config)}, sets(small_model)));
  EXPECT_EQ(asks.code, 2);
  for (const char* flag :
       {"--ranks N", "--set precision.compute=bf16", "--set batch.global=N", "--set optimizer.lr=",
        "--set optimizer.betas=", "--set optimizer.eps=", "--set optimizer.weight_decay="})
    EXPECT_NE(asks.out.find(flag), std::string::npos) << flag << asks.out;
  expect_converted({"z3.json",
                    config,
                    with({"--ranks", "2"},
                         sets(with(small_model, {"batch.global=8", "batch.micro=4", "precision.compute=bf16",
                                                 "optimizer.lr=1e-4", "optimizer.betas=[0.9,0.99]",
                                                 "optimizer.eps=1e-8", "optimizer.weight_decay=0.1"}))),
                    {"stage = 3", "betas = [0.9, 0.99]", "compute = \"bf16\""},
                    {},
                    {}});
}

// Of two sizes and the ranks, any two say the third.
TEST(ConvertDeepSpeed, WhereRanksAreMissingNothingElseIsAskedFor) {
  for (const char* size : {"train_batch_size", "train_micro_batch_size_per_gpu"}) {
    const std::string config =
        detail::concat(R"({"bf16": {"enabled": true}, ")", size,
                       R"(": 16, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}})");
    const Result asks = prun(with({"convert", file_of("ranks.json", config)}, sets(small_model)));
    EXPECT_EQ(asks.code, 2);
    EXPECT_NE(asks.out.find("--ranks N"), std::string::npos) << asks.out;
    EXPECT_EQ(asks.out.find("--set batch."), std::string::npos) << asks.out;
  }
}

// deepspeedai/DeepSpeedExamples, training/tensor_parallel/hf_integration/configs/ds_config.json
TEST(ConvertDeepSpeed, TensorParallel) {
  expect_converted({"ds_config.json",
                    R"({
    "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 1000, "warmup_min_lr": 0, "warmup_max_lr": 1e-4, "warmup_num_steps": 100, "warmup_type": "linear"}},
    "zero_optimization": {"stage": 2, "gather_16bit_weights_on_model_save": true}, "tensor_parallel": {"autotp_size": 4},
    "train_batch_size": 16, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4, "wall_clock_breakdown": false})",
                    sets(small_model),
                    {"dp = 2", "tp = 4", "stage = 2", "schedule.kind = \"linear\"", "schedule.steps = 1000"},
                    {},
                    {}});
}

// deepspeedai/DeepSpeedExamples, training/DeepSpeed-ZenFlow/finetuning/zf_config.json
TEST(ConvertDeepSpeed, WhatNobodyElseHasIsRefusedByName) {
  expect_converted(
      {"zf_config.json",
       R"({
    "train_batch_size": 32, "bf16": {"enabled": true},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true},
      "zenflow": {"topk_ratio": 0.1, "update_interval": 4, "full_warm_up_rounds": 0, "overlap_step": true}},
    "optimizer": {"type": "AdamW", "params": {"lr": 2e-5, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}},
    "gradient_accumulation_steps": 1, "gradient_clipping": 1.0, "zero_allow_untested_optimizer": true, "no_such_key": {"x": 1}})",
       with({"--ranks", "4"}, sets(small_model)),
       {"micro = 8", "dp = 4"},
       {"zero_optimization.zenflow.topk_ratio", "zero_optimization.zenflow.update_interval",
        "zero_optimization.zenflow.full_warm_up_rounds", "zero_optimization.zenflow.overlap_step"},
       {"no_such_key.x"}});
}

TEST(ConvertDeepSpeed, BatchSizesThatDoNotComeOutAreRefused) {
  const Result result = prun(
      with({"convert", file_of("ds.json", R"({"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4})"),
            "--ranks", "2"},
           sets(small_model)));
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.out.find("train_batch_size = 10 is not micro batch 4"), std::string::npos) << result.out;
}

// ------------------------------------------------------------------- Megatron-LM

// NVIDIA/Megatron-LM, examples/gpt3/train_gpt3_175b_distributed.sh
const char* const gpt3 = R"(#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=16
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
CHECKPOINT_PATH=$1 #<Specify path>
DATA_PATH=$5
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr localhost
)
GPT_MODEL_ARGS=(
    --num-layers 96
    --hidden-size 12288
    --num-attention-heads 96
    --seq-length 2048
    --max-position-embeddings 2048
    --attention-backend auto # Can use (flash/fused/unfused/local)
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 1536
    --rampup-batch-size 16 16 5859375
    --train-iters 500000
    --weight-decay 0.1
    --adam-beta1 0.9
    --adam-beta2 0.95
    --init-method-std 0.006
    --clip-grad 1.0
    --fp16
    --lr 6.0e-5
    --lr-decay-style cosine
    --min-lr 6.0e-6
    --lr-warmup-fraction .001
    --lr-decay-iters 430000
)
MODEL_PARALLEL_ARGS=(
	--tensor-model-parallel-size 8
	--pipeline-model-parallel-size 16
)
DATA_ARGS=(
    --data-path $DATA_PATH
    --vocab-file $VOCAB_FILE
    --split 949,50,1
)
EVAL_AND_LOGGING_ARGS=(
    --log-interval 100
    --save-interval 10000
    --save $CHECKPOINT_PATH
    --eval-interval 1000
    --eval-iters 10
    --tensorboard-dir $TENSORBOARD_LOGS_PATH
)
torchrun ${DISTRIBUTED_ARGS[@]} examples/classes/pretrain_gpt.py \
    ${GPT_MODEL_ARGS[@]} \
    "${TRAINING_ARGS[@]}" \
    ${MODEL_PARALLEL_ARGS[@]} \
    ${DATA_ARGS[@]} \
    ${EVAL_AND_LOGGING_ARGS[@]}
)";

TEST(ConvertMegatron, Gpt3InArrays) {
  const Result asks = prun({"convert", file_of("gpt3.sh", gpt3)});
  EXPECT_EQ(asks.code, 2);
  EXPECT_NE(asks.out.find("--set model.vocab=N"), std::string::npos) << asks.out;
  EXPECT_NE(asks.out.find("--set data.plugin=tokens --set data.path=PREFIX"), std::string::npos) << asks.out;
  expect_converted({"gpt3.sh",
                    gpt3,
                    sets(with(text, {"model.vocab=50257"})),
                    {"layers = 96",
                     "hidden = 12288",
                     "seq = 2048",
                     "vocab = 51200",
                     "pp = 16",
                     "tp = 8",
                     "dropout = 0.1",
                     "tied = true",
                     "steps = 500000",
                     "schedule.warmup = 430",
                     "schedule.steps = 430000",
                     "schedule.final = 0.1",
                     "betas = [0.9, 0.95]",
                     "validation = 0.051",
                     "every = 1000",
                     "batches = 10",
                     "seed = 1234",
                     "compute = \"fp16\"",
                     "rule = \"megatron\"",
                     "ramp.start = 16",
                     "ramp.increment = 16",
                     "ramp.samples = 5859375",
                     "init_std = 0.006"},
                    {},
                    {},
                    with(narrow, {"model.layers=30", "batch.global=32"})});
}

TEST(ConvertMegatron, TheLossScaleIsCarriedOver) {
  const std::string script =
      "pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
      "--max-position-embeddings 32 --micro-batch-size 1 --global-batch-size 2 --train-iters 10 --lr 1e-4 "
      "--attention-dropout 0 --hidden-dropout 0 --init-method-std 0.02 --fp16 ";
  const Words others = with({"--ranks", "1"}, sets(with(text, {"model.vocab=256"})));
  expect_converted(
      {"moving.sh",
       script + "--initial-loss-scale 65536 --min-loss-scale 2 --loss-scale-window 500 --hysteresis 4",
       others,
       {"compute = \"fp16\"", "rule = \"megatron\"", "initial = 65536", "least = 2", "window = 500",
        "hysteresis = 4"},
       {},
       {}});
  expect_converted({"fixed.sh",
                    script + "--loss-scale 128",
                    others,
                    {"compute = \"fp16\"", "rule = \"static\"", "initial = 128"},
                    {},
                    {}});
}

// NVIDIA/Megatron-LM, examples/pretrain_gpt.sh
TEST(ConvertMegatron, ContextParallelism) {
  for (const char* key : {"context-parallel-size", "ds-sequence-parallel-size"})
    expect_converted({"cp.sh",
                      std::string("torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 2 "
                                  "--hidden-size 64 --num-attention-heads 4 --seq-length 32 "
                                  "--max-position-embeddings 32 --micro-batch-size 1 --global-batch-size 4 "
                                  "--train-iters 10 --lr 1e-4 --vocab-size 256 --split 1 "
                                  "--tensor-model-parallel-size 2 --attention-dropout 0 --bf16 "
                                  "--use-distributed-optimizer --") +
                          key + " 4\n",
                      sets(text),
                      {"dp = 2", "cp = 4", "tp = 2", "global = 4", "micro = 1", "stage = 1",
                       "plugin = \"context\"", "axis = [\"dp\", \"cp\"]"},
                      {},
                      {}});
}

TEST(ConvertMegatron, ACommandOfOneRank) {
  expect_converted({"pretrain_gpt.sh",
                    R"(#! /bin/bash
# Runs the "345M" parameter model
RANK=${RANK:-0}
DATA_PATH=${DATA_PATH:-<Specify path and file prefix>_text_document}
CHECKPOINT_PATH=${CHECKPOINT_PATH:-<Specify path>}

python pretrain_gpt.py \
       --num-layers 24 \
       --hidden-size 1024 \
       --num-attention-heads 16 \
       --micro-batch-size 4 \
       --global-batch-size 8 \
       --seq-length 1024 \
       --max-position-embeddings 1024 \
       --train-iters 500000 \
       --lr-decay-iters 320000 \
       --save $CHECKPOINT_PATH \
       --load $CHECKPOINT_PATH \
       --data-path $DATA_PATH \
       --vocab-file gpt2-vocab.json \
       --data-impl mmap \
       --split 949,50,1 \
       --distributed-backend nccl \
       --lr 0.00015 \
       --min-lr 1.0e-5 \
       --lr-decay-style cosine \
       --weight-decay 1e-2 \
       --clip-grad 1.0 \
       --lr-warmup-fraction .01 \
       --checkpoint-activations \
       --log-interval 100 \
       --save-interval 10000 \
       --eval-interval 1000 \
       --eval-iters 10 \
       --fp16
)",
                    with({"--ranks", "1"}, sets(with(text, {"model.vocab=50304"}))),
                    {"layers = 24", "attention_dropout = 0.1", "schedule.warmup = 3200", "mode = \"full\"",
                     "save_every = 10000", "weight_decay = 0.01", "betas = [0.9, 0.999]"},
                    {},
                    {},
                    narrow});
}

// NVIDIA/Megatron-LM, examples/pretrain_gpt_distributed_with_mp.sh
TEST(ConvertMegatron, TwoByTwoByTwo) {
  expect_converted({"pretrain_gpt_distributed_with_mp.sh",
                    R"(#! /bin/bash
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
MASTER_ADDR=${MASTER_ADDR:-localhost}
NNODES=${NNODES:-1}
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --master_addr $MASTER_ADDR"
python -m torch.distributed.launch $DISTRIBUTED_ARGS \
       pretrain_gpt.py \
       --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 \
       --num-layers 24 --hidden-size 1024 --num-attention-heads 16 \
       --micro-batch-size 4 --global-batch-size 16 --seq-length 1024 --max-position-embeddings 1024 \
       --train-iters 500000 --lr-decay-iters 320000 --data-path $DATA_PATH --split 949,50,1 \
       --lr 0.00015 --lr-decay-style cosine --min-lr 1.0e-5 --weight-decay 1e-2 --clip-grad 1.0 \
       --lr-warmup-fraction .01 --checkpoint-activations --log-interval 100 --eval-interval 1000 --eval-iters 10 --fp16
)",
                    sets(with(text, {"model.vocab=50432"})),
                    {"dp = 2", "pp = 2", "tp = 2", "schedule = \"1f1b\"", "mode = \"full\""},
                    {},
                    {},
                    narrow});
}

// NVIDIA/Megatron-LM, examples/code_parrot/pretrain_parrot_torchrun_seq_parallel.sh: what is given twice
// counts once.
TEST(ConvertMegatron, OptionsInQuotesAndGivenTwice) {
  expect_converted({"parrot.sh",
                    R"(GPUS_PER_NODE=4
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE"
DATA_PATH=codeparrot_content_document
GPT_ARGS="--num-layers 10
--hidden-size 4096
--num-attention-heads 32
--seq-length 1024
--max-position-embeddings 8192
--micro-batch-size 2
--global-batch-size 4
--lr 0.0005
--train-iters 150000
--lr-decay-iters 150000
--lr-decay-style cosine
--lr-warmup-iters 2000
--weight-decay .1
--adam-beta2 .999
--fp16
--log-interval 10
"
OUTPUT_ARGS="
    --log-interval 100 \
    --eval-iters 10
"
# Intended for use on A10 GPUs
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \
    --tensor-model-parallel-size 2 \
    --pipeline-model-parallel-size 2 \
    --empty-unused-memory-level 2 \
    --sequence-parallel \
    --recompute-granularity selective \
    --use-distributed-optimizer \
    --use-flash-attn \
    $GPT_ARGS \
    --data-path $DATA_PATH \
    $OUTPUT_ARGS)",
                    sets(with(text, {"model.vocab=49152"})),
                    {"positions = 8192", "sequence = true", "every = 100", "weight_decay = 0.1",
                     "schedule.warmup = 2000", "pp = 2", "tp = 2"},
                    {},
                    {},
                    narrow});
}

// NVIDIA/Megatron-LM, examples/llama/train_llama3_8b_h100_fp8.sh
TEST(ConvertMegatron, Llama3WithBranches) {
  expect_converted({"llama3.sh",
                    R"(#!/bin/bash
GPUS_PER_NODE=8
NUM_NODES=1
DTYPE="fp8"
SEQ_LENGTH=8192
DATA_CACHE_PATH="${PWD}/benchmark_cache"
mkdir -p "$DATA_CACHE_PATH"
DISTRIBUTED_ARGS=( --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES )
MODEL_ARGS=(
    --use-mcore-models
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --kv-channels 128
    --seq-length $SEQ_LENGTH
    --max-position-embeddings $SEQ_LENGTH
    --position-embedding-type rope
    --rotary-base 1000000
    --rotary-percent 1.0
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --swiglu
    --init-method-std 0.0134
    --apply-layernorm-1p
    --untie-embeddings-and-output-weights
    --disable-bias-linear
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 128
    --train-samples 1953125000
    --lr-decay-samples 1949218748
    --lr-warmup-samples 3906252
    --lr 0.00015
    --min-lr 0.00001
    --decoupled-lr 5.0e-4      # Specific to decoupled AdamW
    --lr-decay-style cosine
    --adam-beta1 0.9
    --adam-beta2 0.95
    --bf16
    --grad-reduce-in-bf16
    --exit-duration-in-mins 235
)
DTYPE_ARGS=()
if [[ "$DTYPE" == "fp8" ]]; then
    DTYPE_ARGS+=(
        "--fp8-format hybrid"
        "--fp8-param-gather"
    )
fi
MODEL_PARALLEL_ARGS=(
    --tensor-model-parallel-size 1
    # --pipeline-model-parallel-size $PP_SIZE
    --sequence-parallel
)
DDP_ARGS=( --use-distributed-optimizer --overlap-grad-reduce )
TRAINING_ARGS+=("${DDP_ARGS[@]}")
if [ ! -f "$PRETRAIN_SCRIPT_PATH" ]; then
    echo "Error: not found"
    exit 1
fi
torchrun ${DISTRIBUTED_ARGS[@]} \
    pretrain_gpt.py \
    ${MODEL_ARGS[@]} \
    ${TRAINING_ARGS[@]} \
    ${DTYPE_ARGS[@]} \
    ${MODEL_PARALLEL_ARGS[@]}
)",
                    sets(with(text, {"model.vocab=128256"})),
                    {"plugin = \"llama\"", "kv_heads = 8", "head_dim = 128", "ffn = 14336",
                     "rope_base = 1000000", "tied = false", "steps = 15258790", "schedule.warmup = 30518",
                     "dp = 8", "stage = 1", "reduce = \"bf16\"", "compute = \"bf16\"", "init_std = 0.0134"},
                    {"apply-layernorm-1p", "decoupled-lr", "exit-duration-in-mins", "normalization"},
                    {},
                    with(narrow, {"model.kv_heads=2", "model.head_dim=16"})});
}

// bigscience-workshop/Megatron-DeepSpeed, examples/pretrain_gpt3_175B.sh: a blend of data, steps in samples,
// one quoted command.
TEST(ConvertMegatron, ABlendOfDataWithinSrun) {
  const fs::path folder = temporary_folder();
  const std::string script = R"(#!/bin/bash
#SBATCH --nodes=128 --ntasks-per-node=8
DIR=`pwd`
DATASET="0.2 /data/one 0.3 /data/two 0.5 /data/three"
options=" \
	--tensor-model-parallel-size 8 \
	--pipeline-model-parallel-size 16 \
        --num-layers 96 --hidden-size 12288 --num-attention-heads 96 \
        --seq-length 2048 --max-position-embeddings 2048 \
 	--micro-batch-size 1 --global-batch-size 1536 \
	--rampup-batch-size 16 16 5859375 \
	--train-samples 146484375 --lr-decay-samples 126953125 --lr-warmup-samples 183105 \
        --lr 6.0e-5 --min-lr 6.0e-6 --lr-decay-style cosine \
	--data-path ${DATASET} \
	--split 98,2,0 --eval-iters 40 \
	--clip-grad 1.0 --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006 \
        --fp16 --checkpoint-activations "
run_cmd="python -u ${DIR}/pretrain_gpt.py $@ ${options}"
srun -l \
     --container-image "nvcr.io/nvidia/pytorch:20.12-py3" \
     --output=$DIR/logs/%x.log sh -c "${run_cmd}"
)";
  const std::string recipe = (folder / "recipe.toml").string();
  const Result converted = prun({"convert", file_of("gpt3_175B.sh", script), "--ranks", "1024", "--set",
                                 "model.vocab=51200", "--out", recipe});
  ASSERT_EQ(converted.code, 0) << converted.out;
  EXPECT_EQ(names_under(converted.out, "Not carried over:"), Words()) << converted.out;
  std::stringstream written;
  written << std::ifstream(recipe).rdbuf();
  for (const char* line :
       {"steps = 111355", "schedule.steps = 98640", "schedule.warmup = 7028", "weight = 0.2",
        "path = \"/data/two\"", "weight = 0.5", "validation = 0.02", "dp = 8"})
    EXPECT_TRUE(has_line(written.str(), line)) << line << written.str();
  const Result plan =
      prun(with({"plan", recipe}, sets(with(narrow, {"model.layers=30", "batch.global=32"}))));
  EXPECT_EQ(plan.code, 0) << plan.out;
}

TEST(ConvertMegatron, LayersThatStayInBf16) {
  const auto script = [](const std::string& more) {
    return "torchrun --nproc_per_node 1 pretrain_gpt.py --num-layers 4 --hidden-size 128 "
           "--num-attention-heads 2"
           " --seq-length 128 --max-position-embeddings 128 --micro-batch-size 1 --global-batch-size 2"
           " --train-iters 10 --lr 1e-4 --attention-dropout 0 --hidden-dropout 0 --bf16 " +
           more + "\n";
  };
  expect_converted({"ends.sh",
                    script("--fp8-recipe blockwise --first-last-layers-bf16 --num-layers-at-end-in-bf16 2"),
                    sets(with(text, {"model.vocab=512"})),
                    {"plugin = \"fp8\"", "first_in_compute = 1", "last_in_compute = 2"},
                    {},
                    {}});
  expect_converted({"none.sh",
                    script("--first-last-layers-bf16"),
                    sets(with(text, {"model.vocab=512"})),
                    {"compute = \"bf16\""},
                    {},
                    {}});
}

// bigscience-workshop/Megatron-DeepSpeed, examples/pretrain_gpt_tiny.sh
TEST(ConvertMegatron, ATextOfArgumentsAlone) {
  expect_converted({"args.txt",
                    R"(--num-layers 2 --hidden-size 128
--num-attention-heads 4 --micro-batch-size 4 --global-batch-size 8
--seq-length 256 --max-absolute-position-embeddings 256 --position-embedding-type absolute
--train-iters 10000 --lr-decay-iters 5000 --lr 0.00015 --min-lr 1.0e-5 --lr-decay-style cosine
--data-path GPT2/c4_en_partial_gpt2_text_document --tokenizer-type PretrainedFromHF --split 949,50,1
--weight-decay 1e-2 --clip-grad 1.0 --lr-warmup-fraction .01 --checkpoint-activations --vocab-size 500
--hidden-dropout 0 --attention-dropout 0 --bf16 --tensorboard-dir GPT2 --no-such-thing 3)",
                    with({"--ranks", "1"}, sets(text)),
                    {"layers = 2", "positions = 256", "vocab = 512", "dropout = 0", "path = \"GPT2\""},
                    {},
                    {"no-such-thing"}});
}

// microsoft/Megatron-DeepSpeed, examples_deepspeed/rebase/ds_pretrain_gpt_1.3B.sh: a run ends by its tokens;
// the samples are more than enough.
TEST(ConvertMegatron, StepsInTokens) {
  const std::string shape = R"(--num-layers 2 --hidden-size 128 --num-attention-heads 4 --micro-batch-size 4
--global-batch-size 8 --seq-length 256 --max-position-embeddings 256 --vocab-size 500 --hidden-dropout 0
--attention-dropout 0 --bf16 --lr 2e-4 --min-lr 1e-6 --lr-decay-style cosine --init-method-std 0.013 )";
  const auto converted = [&](const std::string& counts, const Words& says, const Words& refused = {}) {
    expect_converted({"args.txt", shape + counts, with({"--ranks", "1"}, sets(text)), says, refused, {}});
  };
  converted(
      "--train-tokens 2048000 --train-samples 99999999 --lr-decay-tokens 1024000 --lr-warmup-tokens 204800",
      {"steps = 1000", "schedule.steps = 500", "schedule.warmup = 100", "init_std = 0.013"});
  converted("--train-tokens 2048000 --train-iters 10 --lr-warmup-tokens 2048",
            {"steps = 10", "schedule.warmup = 1"});
}

// NVIDIA/Megatron-LM, examples/mixtral/train_mixtral_8x7b_distributed.sh
TEST(ConvertMegatron, AModelThatThereIsNotIsRefused) {
  const Result result = prun(
      {"convert", file_of("mixtral.sh",
                          "torchrun pretrain_gpt.py --num-layers 2 --num-experts 2 --moe-router-topk 2\n")});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.out.find("--num-experts 2"), std::string::npos) << result.out;
}

TEST(ConvertMegatron, AScriptThatEndsTooSoonIsRefusedWithItsLine) {
  const Result result = prun({"convert", file_of("broken.sh", "A=(\n--lr 1\npython x.py ${A[@]}\n")});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.out.find("broken.sh, line 4"), std::string::npos) << result.out;
}

// ------------------------------------------------------------------- torchtitan

// pytorch/torchtitan, torchtitan/models/llama3/train_configs/llama3_8b.toml
TEST(ConvertTorchtitan, Llama3Of8B) {
  expect_converted(
      {"llama3_8b.toml",
       R"(# torchtitan Config.toml
[job]
dump_folder = "./outputs"
description = "Llama 3 8B training"
[profiling]
enable_profiling = true
profile_freq = 100
[metrics]
log_freq = 10
enable_tensorboard = true
save_tb_folder = "tb"
[model]
name = "llama3"
flavor = "8B"
tokenizer_path = "./assets/tokenizer.model"
[optimizer]
name = "AdamW"
lr = 3e-4
eps = 1e-8
[lr_scheduler]
warmup_steps = 200
[training]
batch_size = 1
seq_len = 8192
max_norm = 1.0
steps = 1000
compile = false
dataset = "c4"
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 1
pipeline_parallel_degree = 1
context_parallel_degree = 1
[checkpoint]
enable_checkpoint = false
interval = 500
[activation_checkpoint]
mode = 'selective'
selective_ac_option = 'op'
[float8]
filter_fqns = "output"
)",
       with({"--ranks", "8"}, sets(text)),
       {"layers = 32", "kv_heads = 8", "vocab = 128256", "global = 8", "micro = 1", "dp = 8", "stage = 3",
        "lr = 0.0003", "schedule.kind = \"linear\"", "schedule.warmup = 200", "mode = \"budget\"",
        "every = 10", "plugin = \"tensorboard\"", "path = \"./outputs/tb\"", "compute = \"bf16\""},
       {"training.dataset", "activation_checkpoint.selective_ac_option"},
       {},
       with(narrow, {"model.kv_heads=2"})});
}

// pytorch/torchtitan, torchtitan/models/llama3/train_configs/llama3_405b.toml
TEST(ConvertTorchtitan, Llama3Of405BInFloat8) {
  expect_converted({"llama3_405b.toml",
                    R"([model]
name = "llama3"
flavor = "405B"
converters = "float8"
[optimizer]
name = "AdamW"
lr = 8e-5
eps = 1e-8
[lr_scheduler]
warmup_steps = 600
[training]
batch_size = 2
seq_len = 8192
max_norm = 1.0
steps = 3000
compile = true
dataset = "c4"
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
[activation_checkpoint]
mode = 'full'
[float8]
enable_fsdp_float8_all_gather = true
)",
                    with({"--ranks", "128"}, sets(text)),
                    {"layers = 126", "hidden = 16384", "dp = 16", "tp = 8", "sequence = true",
                     "mode = \"full\"", "global = 32"},
                    {"model.converters", "training.dataset"},
                    {},
                    with(narrow, {"model.kv_heads=8"})});
  const Result said = prun(with({"convert", (temporary_folder() / "llama3_405b.toml").string(), "--ranks",
                                 "128", "--out", (temporary_folder() / "float8.toml").string()},
                                sets(text)));
  EXPECT_NE(said.out.find("strategy fp8"), std::string::npos) << said.out;
}

// pytorch/torchtitan, train_configs/llama3_70b.toml as of 2024, when keys lay elsewhere
TEST(ConvertTorchtitan, AnOldSpelling) {
  expect_converted({"llama3_70b.toml",
                    R"([model]
name = "llama3"
flavor = "70B"
norm_type = "rmsnorm"
[optimizer]
name = "AdamW"
lr = 1.5e-4
[training]
batch_size = 8
seq_len = 8192
warmup_steps = 200
max_norm = 1.0
steps = 1000
data_parallel_degree = -1
tensor_parallel_degree = 8
dataset = "c4"
[dataset]
data_logical_shards = 768
bos_token = 128000
[experimental]
pipeline_parallel_degree = 1
[checkpoint]
enable_checkpoint = true
interval = 500
[activation_checkpoint]
mode = 'full'
)",
                    with({"--ranks", "64"}, sets(text)),
                    {"layers = 80", "ffn = 28672", "dp = 8", "tp = 8", "schedule.warmup = 200",
                     "save_every = 500", "weight_decay = 0.1"},
                    {"training.dataset", "dataset.data_logical_shards", "dataset.bos_token"},
                    {},
                    with(narrow, {"model.kv_heads=8"})});
}

// pytorch/torchtitan, torchtitan/models/llama3/train_configs/debug_model.toml
TEST(ConvertTorchtitan, ContextParallelism) {
  for (const char* table : {"parallelism", "experimental"}) {
    const std::string config = std::string(R"([model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
steps = 10
[)") + table + "]\ncontext_parallel_degree = 4\n";
    expect_converted({"cp.toml",
                      config,
                      with({"--ranks", "8"}, sets(text)),
                      {"dp = 2", "cp = 4", "global = 2", "micro = 1", "stage = 3", "plugin = \"context\"",
                       "axis = [\"dp\", \"cp\"]"},
                      {},
                      {},
                      narrow});
  }
}

TEST(ConvertTorchtitan, RanksThatContextParallelismDoesNotDivideAreRefused) {
  const std::string config =
      "[model]\nflavor = \"8B\"\n[training]\nlocal_batch_size = 1\n[parallelism]\ncontext_parallel_degree = "
      "4\n";
  const Result refused = prun(with({"convert", file_of("cp.toml", config), "--ranks", "6"}, sets(text)));
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.out.find("cp.toml: 6 ranks are no multiple of the 4 that tensor, pipeline and context "
                             "parallelism take"),
            std::string::npos)
      << refused.out;
}

TEST(ConvertTorchtitan, AShapeThatChangedIsAskedFor) {
  const std::string config = R"([model]
name = "llama3"
flavor = "debugmodel"
[lr_scheduler]
warmup_steps = 2
decay_ratio = 0.8
decay_type = "linear"
min_lr_factor = 0.1
[training]
local_batch_size = 8
seq_len = 2048
steps = 10
[parallelism]
data_parallel_shard_degree = 2
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "Interleaved1F1B"
new_switch = 1
)";
  const Result asks = prun(with({"convert", file_of("debug_model.toml", config)}, sets(text)));
  EXPECT_EQ(asks.code, 2);
  EXPECT_NE(asks.out.find("--set model.layers=N"), std::string::npos) << asks.out;
  expect_converted({"debug_model.toml",
                    config,
                    sets(with(text, {"model.layers=6", "model.hidden=256", "model.heads=16",
                                     "model.vocab=2048", "model.ffn=768"})),
                    {"schedule.final = 0.1", "dp = 2", "pp = 2", "chunks = 2", "schedule = \"interleaved\"",
                     "micro = 1", "global = 16", "lr = 0.0008", "stage = 3"},
                    {"model.flavor", "lr_scheduler.decay_ratio"},
                    {"parallelism.new_switch"},
                    {"model.seq=64"}});
}

// pytorch/torchtitan, torchtitan/models/deepseek_v3/train_configs/deepseek_v3_16b.toml
TEST(ConvertTorchtitan, AnotherModelIsAskedFor) {
  const Result result = prun(
      {"convert",
       file_of("deepseek.toml", "[model]\nname = \"deepseek_v3\"\nflavor = \"16B\"\n[training]\nsteps = 1\n"),
       "--ranks", "2"});
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.out.find("--model CONFIG.json"), std::string::npos) << result.out;
}

// ------------------------------------------------------------------- experts

const Words few_experts = {"model.plugin=llama",  "model.family=qwen3_moe", "model.layers=2",
                           "model.hidden=64",     "model.heads=4",          "model.kv_heads=2",
                           "model.ffn=128",       "model.experts=8",        "model.choices=2",
                           "model.expert_ffn=32", "model.vocab=256",        "model.seq=32"};

// pytorch/torchtitan, torchtitan/models/qwen3/train_configs/qwen3_moe_debug.toml, of other sizes
std::string qwen3_of(const std::string& degrees) {
  return R"([model]
name = "qwen3"
flavor = "30B-A3B"
[training]
local_batch_size = 1
seq_len = 64
steps = 10
[activation_checkpoint]
mode = "none"
[parallelism]
)" + degrees;
}
const Words narrow_experts = {"model.layers=2",      "model.hidden=64", "model.heads=8",
                              "model.head_dim=8",    "model.vocab=256", "model.experts=16",
                              "model.expert_ffn=32", "model.ffn=64"};

TEST(ConvertTorchtitan, ExpertsOverRanksOfTheBatch) {
  expect_converted({"qwen3.toml",
                    qwen3_of("data_parallel_shard_degree = 4\nexpert_parallel_degree = 4\n"
                             "expert_parallel_comm_backend = \"deepep\"\n"),
                    sets(text),
                    {"family = \"qwen3_moe\"", "experts = 128", "choices = 8", "expert_ffn = 768",
                     "router_normalise = true", "router_bias = true", "router_bias_rate = 0.001",
                     "head_dim = 128", "layers = 48", "dp = 4", "plugin = \"experts\"", "axis = \"dp\""},
                    {},
                    {},
                    narrow_experts});
}

TEST(ConvertTorchtitan, ExpertsBesideTensorParallelism) {
  const auto with_degrees = [&](const std::string& degrees, const Words& says, const Words& refused) {
    expect_converted({"qwen3.toml",
                      qwen3_of("data_parallel_shard_degree = 2\ntensor_parallel_degree = 2\n" + degrees),
                      sets(text),
                      says,
                      refused,
                      {},
                      narrow_experts});
  };
  with_degrees("expert_parallel_degree = 4\n", {"axis = [\"dp\", \"tp\"]"}, {});
  with_degrees("expert_parallel_degree = 2\n", {"axis = \"tp\""}, {});
  with_degrees("expert_parallel_degree = 2\nexpert_tensor_parallel_degree = 2\n", {"axis = \"dp\""}, {});
  with_degrees("expert_parallel_degree = 1\n", {"tp = 2"}, {});
  with_degrees("expert_parallel_degree = 8\n", {"tp = 2"}, {"parallelism.expert_parallel_degree"});
}

TEST(ConvertTorchtitan, AFlavorWithoutExpertsHasNoneToPlace) {
  expect_converted({"qwen3.toml",
                    "[model]\nname = \"qwen3\"\nflavor = \"0.6B\"\n[training]\nlocal_batch_size = 1\n"
                    "seq_len = 64\nsteps = 2\n[activation_checkpoint]\nmode = \"none\"\n[parallelism]\n"
                    "data_parallel_shard_degree = 2\nexpert_parallel_degree = 2\n",
                    sets(text),
                    {"family = \"qwen3\"", "tied = true", "hidden = 1024", "dp = 2"},
                    {},
                    {},
                    {"model.layers=2", "model.hidden=64", "model.heads=8", "model.head_dim=8",
                     "model.vocab=256", "model.ffn=64"}});
}

TEST(ConvertDeepSpeed, ExpertsOverRanks) {
  const auto converted = [&](const std::string& section, const Words& says, const Words& refused,
                             const std::string& rest = "") {
    expect_converted(
        {"ep.json",
         R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, )" + rest +
             R"("zero_optimization": {"stage": 1}, "expert_parallel": {)" + section + "}}",
         with({"--ranks", "4"}, sets(with(few_experts, {"optimizer.plugin=adamw", "optimizer.lr=1e-4",
                                                        "run.steps=4", text[0], text[1]}))),
         says,
         refused,
         {}});
  };
  converted(R"("enabled": true, "autoep_size": 4, "preset_model": "qwen3_moe", "load_balance_coeff": 1e-3,
              "score_func": "softmax", "route_norm": true, "top_k": "auto", "use_grouped_mm": true)",
            {"axis = \"dp\"", "router_bias = true", "router_bias_rate = 0.001", "router_normalise = true",
             "router = \"softmax\""},
            {});
  converted(R"("enabled": true, "autoep_size": 2, "score_apply": "pre", "load_balance_coeff": null)",
            {"dp = 4"}, {"expert_parallel.autoep_size", "expert_parallel.score_apply"});
  converted(R"("enabled": true, "autoep_size": 4)", {"axis = [\"dp\", \"tp\"]"}, {},
            R"("tensor_parallel": {"autotp_size": 2}, "use_data_before_expert_parallelism": true, )");
  converted(R"("enabled": false, "autoep_size": 4)", {"dp = 4"}, {});
}

const std::string mixture =
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 4 "
    "--seq-length 32 --max-position-embeddings 32 --micro-batch-size 1 --global-batch-size 4 --train-iters "
    "10 "
    "--lr 1e-4 --vocab-size 256 --split 1 --tensor-model-parallel-size 2 --attention-dropout 0 --bf16 "
    "--swiglu "
    "--hidden-dropout 0 --normalization RMSNorm --disable-bias-linear --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --ffn-hidden-size 96 ";

TEST(ConvertMegatron, ExpertsAndTheirRanks) {
  const auto converted = [&](const std::string& more, const Words& says, const Words& refused) {
    expect_converted(
        {"moe.sh",
         mixture + "--num-experts 8 --moe-router-topk 2 --moe-router-load-balancing-type " + more + "\n",
         sets(text),
         says,
         refused,
         {}});
  };
  converted("none --expert-model-parallel-size 4",
            {"experts = 8", "choices = 2", "expert_ffn = 96", "axis = \"dp\""}, {});
  converted("none --expert-model-parallel-size 8 --expert-tensor-parallel-size 1",
            {"axis = [\"dp\", \"tp\"]"}, {});
  converted("seq_aux_loss --moe-aux-loss-coeff 1e-3 --expert-model-parallel-size 2", {"balance = 0.001"},
            {"expert-model-parallel-size"});
}

TEST(ConvertMegatron, ModulesThatPredictFurtherTokens) {
  const auto converted = [&](const std::string& more, const Words& says) {
    expect_converted({"mtp.sh", mixture + more + "\n", sets(text), says, {}, {}});
  };
  converted("--mtp-num-layers 1", {"mtp_layers = 1", "mtp_loss = 0.1"});
  converted("--mtp-num-layers 2 --mtp-loss-scaling-factor 0.3", {"mtp_layers = 2", "mtp_loss = 0.3"});
  converted("--mtp-num-layers 0", {"plugin = \"llama\""});
}

// deepspeedai/Megatron-DeepSpeed, examples_deepspeed/MoE/ds_pretrain_gpt_1.3B_MoE128.sh
TEST(ConvertMegatron, ExpertsAsDeepSpeedsBranchHasThem) {
  const auto converted = [&](const std::string& more, const Words& says, const Words& refused) {
    expect_converted(
        {"ds_moe.sh", mixture + "--deepspeed --num-experts 8 " + more + "\n", sets(text), says, refused, {}});
  };
  converted(
      "--moe-expert-parallel-size 4 --moe-loss-coeff 0.01 --moe-train-capacity-factor 1.0 "
      "--moe-eval-capacity-factor 1.0 --moe-min-capacity 4 --mlp-type standard --create-moe-param-group",
      {"experts = 8", "choices = 1", "router_normalise = false", "axis = \"dp\""},
      {"moe-loss-coeff", "moe-train-capacity-factor", "moe-eval-capacity-factor", "moe-min-capacity"});
  converted(
      "--topk 2 --expert-interval 2 --moe-loss-coeff 0 --disable-moe-token-dropping "
      "--disable-moe-top2-2nd-expert-sampling --moe-expert-parallel-size 1 --mlp-type residual",
      {"choices = 2", "router_normalise = true", "sparse_every = 2"}, {"mlp-type"});
  const Result pyramid =
      prun(with({"convert", file_of("pyramid.sh", mixture + "--num-experts 4 8 --topk 1\n")}, sets(text)));
  EXPECT_EQ(pyramid.code, 2);
  EXPECT_NE(pyramid.out.find("give one number"), std::string::npos) << pyramid.out;
}

// ------------------------------------------------------------------- all

TEST(Convert, TheRecipeSaysWhereEachValueCameFrom) {
  const Result result =
      prun(with({"convert", file_of("a.json", R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 1, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}})")},
                sets(small_model)));
  ASSERT_EQ(result.code, 0) << result.out;
  EXPECT_NE(result.out.find("lr = 0.0001"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("# optimizer.params.lr\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("# default of DeepSpeed's optimizer.params.eps\n"), std::string::npos)
      << result.out;
  EXPECT_NE(result.out.find("# --set model.layers\n"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("# From DeepSpeed: 5 of 5 settings are carried over.\n"), std::string::npos)
      << result.out;
}

TEST(Convert, WhatIsNoConfigurationIsRefused) {
  EXPECT_EQ(prun({"convert", "/nowhere.json"}).code, 2);
  EXPECT_EQ(prun({"convert", temporary_folder().string()}).code, 2);
  EXPECT_EQ(prun({"convert", file_of("broken.json", "{\"a\": ")}).code, 2);
  EXPECT_EQ(prun({"convert", file_of("broken.toml", "[a\n")}).code, 2);
  const Result none = prun({"convert", file_of("notes.txt", "some text\n")});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.out.find("neither a DeepSpeed JSON"), std::string::npos) << none.out;
}

// ------------------------------------------------------------------- axolotl

const std::string chat_fixtures = PRUN_TEST_FIXTURES "/chat";
const Words between = sets({"data.between=703", "data.end_of_text=703", "data.too_long=drop"});

std::string axolotl_of_chats(const std::string& more) {
  return "base_model: " + chat_fixtures + "/chatml  # the folder\ndatasets:\n  - path: " + chat_fixtures +
         "/chats.jsonl\n    type: chat_template\nsequence_len: 320\nmicro_batch_size: 2\n"
         "gradient_accumulation_steps: 4\nlearning_rate: 0.0002\n" +
         more;
}

TEST(ConvertAxolotl, ConversationsAndAdaptersAreCarriedOver) {
  expect_converted(
      {"lora.yml",
       axolotl_of_chats("num_epochs: 3\nadapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_dropout: 0.05\n"
                        "lora_target_modules:\n- q_proj\n- v_proj\nlr_scheduler: cosine\n"
                        "warmup_steps: 10\nbf16: auto\ngradient_checkpointing: true\n"
                        "val_set_size: 0.05\nsave_steps: 50\nsaves_per_epoch: 1\nwandb_project:\n"
                        "special_tokens:\n  pad_token: \"<|end|>\"\nflash_attention: true\n"
                        "chat_template: chatml\nsample_packing: true\nwarmness: 3\n"),
       with({"--ranks", "2"}, between),
       {"init = \"" + chat_fixtures + "/chatml\"",
        "plugin = \"chat\"",
        "template = \"chatml\"",
        "pack = true",
        "seq = 320",
        "micro = 2",
        "global = 16",
        "epochs = 3",
        "lr = 0.0002",
        "rank = 4",
        "alpha = 8",
        "dropout = 0.05",
        "targets = [\"q_proj\", \"v_proj\"]",
        "schedule.warmup = 10",
        "compute = \"bf16\"",
        "mode = \"full\"",
        "validation = 0.05",
        "save_every = 50",
        "betas = [0.9, 0.999]",
        "clip = 1",
        "dp = 2"},
       {"saves_per_epoch", "special_tokens.pad_token"},
       {"warmness"}});
}

TEST(ConvertAxolotl, WhatItIsNotHereIsNamed) {
  expect_converted(
      {"full.yaml",
       axolotl_of_chats("max_steps: 100\nwarmup_ratio: 0.1\nnum_epochs: 1\nadapter: qlora\n"
                        "load_in_4bit: true\noptimizer: adamw_torch\nfsdp: [full_shard, auto_wrap]\n"
                        "deepspeed: ds.json\nbf16: false\n"),
       with({"--ranks", "2"}, between),
       {"steps = 100", "schedule.warmup = 10", "stage = 3"},
       {"adapter", "load_in_4bit", "deepspeed"},
       {}});
}

// QLoRA keeps its adapters: without them the run would train all weights.
TEST(ConvertAxolotl, EightBitsOfMomentsAndAdaptersBesideFewBitsAreCarriedOver) {
  for (const char* optimizer : {"adamw_bnb_8bit", "adamw_8bit", "adamw_torch_8bit", "paged_adamw_8bit"})
    expect_converted(
        {"qlora.yml",
         axolotl_of_chats(std::string("max_steps: 10\nwarmup_steps: 1\nadapter: qlora\nlora_r: 4\n"
                                      "load_in_4bit: true\nbf16: false\noptimizer: ") +
                          optimizer + "\n"),
         with({"--ranks", "1"}, between),
         {"moments = \"8bit\"", "plugin = \"adamw\"", "plugin = \"lora\"", "rank = 4"},
         {"adapter", "load_in_4bit"},
         {}});
  expect_converted({"paged.yml",
                    axolotl_of_chats("max_steps: 20\nwarmup_steps: 0.1\noptimizer: paged_adamw_32bit\n"),
                    with({"--ranks", "1"}, between),
                    {"plugin = \"adamw\"", "schedule.warmup = 2"},
                    {},
                    {}});
  expect_converted({"share.yml",
                    axolotl_of_chats("num_epochs: 2\nwarmup_steps: 0.1\n"),
                    with({"--ranks", "1"}, between),
                    {"epochs = 2"},
                    {"warmup_steps"},
                    {}});
}

TEST(ConvertAxolotl, WhatIsOnAHubIsAskedFor) {
  const Result asked =
      prun({"convert", file_of("hub.yml",
                               "base_model: Qwen/Qwen2.5-0.5B\ndatasets:\n  - path: "
                               "some/chats\n    type: chat_template\nlearning_rate: 1e-4\n")});
  EXPECT_EQ(asked.code, 2);
  for (const char* flag : {"--set model.init=FOLDER", "--set data.path=FILE", "--set data.tokenizer=FOLDER",
                           "--set data.between=ID", "--ranks N", "--set model.seq=N"})
    EXPECT_NE(asked.out.find(flag), std::string::npos) << flag << "\n" << asked.out;
}

TEST(ConvertAxolotl, OtherFormsOfYamlAreRefusedByTheirLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"a: 1\n\tb: 2\n", "line 2 is indented by a tab"},
      {"a: |\n  text\n", "line 1 has a form of YAML that is not read"},
      {"a: {b: 1}\n", "line 1 has a form of YAML that is not read"},
      {"a: 1\n   b: 2\n", "line 2 is indented otherwise"},
      {"a\n", "line 1 is neither a key with a value nor an item"},
      {"a: [1, 2\n", "line 1 begins a list that does not end on it"},
      {"a:\n  -\n    b: 1\n", "line 2 begins an item on a line of its own"}};
  for (const auto& [yaml, reason] : cases) {
    const Result refused = prun({"convert", file_of("other.yml", yaml)});
    EXPECT_EQ(refused.code, 2) << yaml;
    EXPECT_NE(refused.out.find(reason), std::string::npos) << yaml << refused.out;
  }
}

}  // namespace
}  // namespace prun::test
