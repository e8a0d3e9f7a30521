// Converts the arguments of Megatron-LM, and of its derivatives. Where they are absent Megatron's own
// defaults are written, since prun's differ.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>

#include "base/text.hpp"
#include "convert/layout.hpp"
#include "convert/megatron_rules.hpp"
#include "convert/transfer.hpp"
#include "prun/error.hpp"
#include "recipe/value.hpp"

namespace prun::convert {
namespace {

// ------------------------------------------------------------------- megatron experts
// Converts the arguments of Megatron-LM that describe a model's experts, and say which ranks have them.

constexpr Fate refused = Fate::refused, without_effect = Fate::without_effect;

constexpr const char* no_drops = "without model.capacity no choice is dropped";
constexpr const char* of_sequences =
    "a capacity is of each sequence, not of a rank's microbatch, and the same in every layout: "
    "model.capacity";
constexpr const char* by_sequence =
    "loads are balanced by sequence (seq_aux_loss), which no layout changes: model.balance";
constexpr const char* rows = "the op of the experts puts rows in order and computes them";

constexpr std::array rules = {
    Rule{"moe-grouped-gemm", "", without_effect, rows},
    Rule{"moe-use-legacy-grouped-gemm", "", without_effect, rows},
    Rule{"moe-permute-fusion", "", without_effect, rows},
    Rule{"moe-router-fusion", "", without_effect, rows},
    Rule{"moe-router-padding*", "", without_effect, rows},
    Rule{"moe-token-dispatcher-type", "", without_effect,
         "exchanges follow from where experts and positions lie"},
    Rule{"moe-enable-deepep", "", without_effect, "exchanges follow from where experts and positions lie"},
    Rule{"moe-flex-dispatcher-*", "", without_effect,
         "exchanges follow from where experts and positions lie"},
    Rule{"moe-shared-expert-overlap", "", without_effect, "the plan orders exchanges and computation"},
    Rule{"moe-per-layer-logging", "", without_effect, "the log has every layer's loads"},
    Rule{"moe-router-dtype", "fp32", without_effect, "scores are in fp32"},
    Rule{"moe-router-dtype", "", refused, "scores are in fp32"},
    Rule{"moe-layer-recompute", "", without_effect,
         "experts keep what comes in and the choices, and compute the rest again"},
    Rule{"moe-expert-capacity-factor", "", refused, of_sequences},
    Rule{"moe-expert-rank-capacity-factor", "", refused, of_sequences},
    Rule{"moe-pad-expert-input-to-capacity", "", refused, of_sequences},
    Rule{"moe-token-drop-policy", "", without_effect, "beside model.capacity, model.capacity_by says it"},
    Rule{"moe-input-jitter-eps", "", refused, "the router adds no noise"},
    Rule{"moe-extended-tp", "", refused, "strategy experts takes several axes"},
    Rule{"moe-router-force-load-balancing", "", refused, "the router's choices count"},
    Rule{"moe-*", "", refused, "this model's routers and experts have no such option"},
};

// Lists options that DeepSpeed's branch of it has for its own experts.
constexpr std::array branch_rules = {
    Rule{"mlp-type", "standard", without_effect, "as here"},
    Rule{"mlp-type", "", refused, "an MLP beside the experts is model.shared_ffn, and adds to them as it is"},
    Rule{"moe-*-capacity*", "", refused, of_sequences},
    Rule{"noisy-gate-policy", "None", without_effect, "as here"},
    Rule{"noisy-gate-policy", "", refused, "the router adds no noise"},
    Rule{"disable-moe-top2-2nd-expert-sampling", "", without_effect, "the router adds no noise"},
    Rule{"use-tutel", "", without_effect, rows},
    Rule{"create-moe-param-group", "", without_effect, "zero takes each parameter over the axes that sum it"},
    Rule{"enable-expert-tensor-parallelism", "", without_effect,
         "strategy tensor splits experts as it splits MLPs"},
};

bool is_of_branch(const Transfer& transfer) {
  constexpr std::array names = {"topk",     "moe-expert-parallel-size", "moe-loss-coeff", "expert-interval",
                                "mlp-type", "moe-train-capacity-factor"};
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return transfer.has(name); });
}

// With one choice the weight is its score; with several they are divided by their sum.
void convert_branch_router(Transfer& transfer) {
  const std::int64_t choices = transfer.integer("topk", 1);
  transfer.take("topk", "model.choices", "1");
  transfer.set("model.router_normalise", choices > 1, "topk: the weights of several choices come to 1");
  if (choices == 2 && !transfer.is("disable-moe-top2-2nd-expert-sampling", "on"))
    transfer.refuse_default("moe-top2-2nd-expert-sampling", "on", "the router adds no noise");
}

void convert_branch(Transfer& transfer) {
  convert_branch_router(transfer);
  if (transfer.has("expert-interval")) transfer.take("expert-interval", "model.sparse_every");
  if (transfer.is("disable-moe-token-dropping", "on"))
    for (const char* key : {"disable-moe-token-dropping", "moe-train-capacity-factor",
                            "moe-eval-capacity-factor", "moe-min-capacity"})
      transfer.without_effect(key, no_drops);
  else if (!transfer.has("moe-train-capacity-factor"))
    transfer.refuse_default("moe-train-capacity-factor", "1", of_sequences);
  if (transfer.number("moe-loss-coeff") == 0.0)
    transfer.without_effect("moe-loss-coeff", "as here");
  else if (transfer.has("moe-loss-coeff"))
    transfer.refuse("moe-loss-coeff", by_sequence);
  else
    transfer.refuse_default("moe-loss-coeff", "0.1", by_sequence);
  transfer.apply(branch_rules);
}

void convert_router(Transfer& transfer) {
  const bool sigmoid = transfer.is("moe-router-score-function", "sigmoid");
  if (transfer.has("moe-router-score-function"))
    transfer.set_text("model.router", sigmoid ? "sigmoid" : "softmax", "moe-router-score-function");
  transfer.carried("moe-router-score-function");
  const bool before = transfer.is("moe-router-pre-softmax", "on");
  if (!sigmoid)
    transfer.set(
        "model.router_normalise", !before,
        before ? "moe-router-pre-softmax" : "softmax of the chosen alone is that of all, normalised");
  transfer.carried("moe-router-pre-softmax");
  transfer.take("moe-router-topk", "model.choices", "2");
  if (transfer.has("moe-router-num-groups")) {
    transfer.take("moe-router-num-groups", "model.router_groups");
    transfer.take("moe-router-group-topk", "model.router_chosen_groups", "1");
  }
  if (transfer.has("moe-router-topk-scaling-factor"))
    transfer.take("moe-router-topk-scaling-factor", "model.router_scale");
  if (!transfer.is("moe-router-enable-expert-bias", "on")) return;
  transfer.set("model.router_bias", true, "moe-router-enable-expert-bias");
  transfer.carried("moe-router-enable-expert-bias");
  transfer.take("moe-router-bias-update-rate", "model.router_bias_rate", "1e-3");
}

// The loss of a microbatch would differ with each layout.
void convert_balance(Transfer& transfer) {
  const std::string kind = transfer.text("moe-router-load-balancing-type", "aux_loss");
  const double coefficient = transfer.number("moe-aux-loss-coeff").value_or(0);
  if (kind == "seq_aux_loss" && coefficient != 0) {
    transfer.take("moe-aux-loss-coeff", "model.balance");
    transfer.carried("moe-router-load-balancing-type");
  } else if (kind == "none" || coefficient == 0) {
    transfer.without_effect("moe-aux-loss-coeff", "as here");
    transfer.without_effect("moe-router-load-balancing-type", "nothing is weighed by it");
  } else {
    transfer.refuse("moe-aux-loss-coeff", by_sequence);
    transfer.refuse("moe-router-load-balancing-type", by_sequence);
  }
  if (transfer.has("moe-z-loss-coeff")) transfer.take("moe-z-loss-coeff", "model.router_z");
}

void convert_mlps(Transfer& transfer) {
  if (const std::string numbers = transfer.text("num-experts"); numbers.find(' ') != std::string::npos)
    throw_error(ErrorCode::unsupported, "--num-experts ", printable(numbers, 60),
                ": all layers that have experts have as many; give one number");
  transfer.take("num-experts", "model.experts");
  transfer.take(transfer.has("moe-ffn-hidden-size") ? "moe-ffn-hidden-size" : "ffn-hidden-size",
                "model.expert_ffn");
  if (transfer.has("moe-shared-expert-intermediate-size"))
    transfer.take("moe-shared-expert-intermediate-size", "model.shared_ffn");
  if (transfer.is("moe-shared-expert-gate", "on")) {
    transfer.set("model.shared_gate", true, "moe-shared-expert-gate");
    transfer.carried("moe-shared-expert-gate");
  }
  if (transfer.is("moe-layer-freq", "1"))
    transfer.without_effect("moe-layer-freq", "as here");
  else if (transfer.has("moe-layer-freq"))
    transfer.refuse("moe-layer-freq",
                    "model.dense_first, sparse_every and dense_layers say which layers have experts");
}

void convert_ranks(Transfer& transfer, const Axes& axes) {
  const char* const key =
      transfer.has("moe-expert-parallel-size") ? "moe-expert-parallel-size" : "expert-model-parallel-size";
  const std::int64_t ranks = transfer.integer(key, 1),
                     tensor = transfer.integer("expert-tensor-parallel-size", axes.tensor);
  const bool with_tensor = tensor == 1 && axes.tensor > 1;
  const char* const other =
      "strategy tensor splits experts as it splits MLPs; strategy experts over its axis keeps them whole";
  if (tensor != axes.tensor && (!with_tensor || ranks == 1)) {
    transfer.refuse("expert-tensor-parallel-size", other);
    transfer.refuse(key, other);
    return;
  }
  carry_experts(transfer, axes, ranks, with_tensor, key, "expert-tensor-parallel-size");
}

// Converts, for a model with experts, all arguments that begin with moe- or expert-, and num-experts.
void convert_experts(Transfer& transfer, const Axes& axes) {
  convert_mlps(transfer);
  if (is_of_branch(transfer)) {
    convert_branch(transfer);
  } else {
    convert_router(transfer);
    convert_balance(transfer);
  }
  convert_ranks(transfer, axes);
  transfer.apply(rules);
}

}  // namespace

// ------------------------------------------------------------------- megatron

namespace megatron {
namespace {

constexpr const char* other_model = "the models are gpt and llama; others are plugins";

// Is a setting with which the model would be another one.
struct Foreign {
  const char* key;
  const char* same;  // changes nothing
};
constexpr std::array foreign = {
    Foreign{"multi-latent-attention", "off"}, Foreign{"spec", "off"},
    Foreign{"hybrid-layer-pattern", "off"},   Foreign{"encoder-num-layers", "0"},
    Foreign{"squared-relu", "off"},           Foreign{"bert-no-binary-head", "off"}};

// ------------------------------------------------------------------- reading

bool is_number(std::string_view word) {
  return recipe::parse_value(recipe::OptionType::real, word).has_value();
}

// Returns "num-layers" for "--num_layers", as argparse does; "-N 4" is not read.
std::string key_of(std::string_view word) {
  std::string key(word.substr(2));
  if (key != "DDP-impl")
    for (char& c : key)
      if (c == '_') c = '-';
  return key;
}

bool names_option(std::string_view word) { return word.starts_with("--") && word.size() > 2; }

void read_options(Transfer& transfer, const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!names_option(words[i])) continue;
    std::string word = words[i], value;
    if (const std::size_t equals = word.find('='); equals != std::string::npos) {
      value = word.substr(equals + 1);
      word.resize(equals);
    }
    while (i + 1 < words.size() && !names_option(words[i + 1]) &&
           (words[i + 1][0] != '-' || is_number(words[i + 1])))
      value += (value.empty() ? "" : " ") + words[++i];
    transfer.add(key_of(word), value.empty() ? on : value);
  }
}

// Leaves open what a script chooses as it runs: by name, once.
void leave_open(Transfer& transfer, const std::vector<std::string>& branched) {
  for (const std::string& word : branched)
    if (const std::string key = names_option(word) ? key_of(word) : "";
        !key.empty() && !transfer.has(key) && !transfer.is_left_open(key)) {
      transfer.add(key, "…");
      transfer.leave_open(key, "it stands in a branch of the script, which is not run");
    }
  for (const Setting& setting : transfer.settings())
    if (left_open(setting.text)) transfer.leave_open(setting.key, "a run of the script would say it");
}

std::optional<std::int64_t> ranks_of_launcher(Transfer& transfer) {
  const auto count = [&](std::initializer_list<const char*> keys) -> std::optional<std::int64_t> {
    for (const char* key : keys)
      if (transfer.has(key) && is_number(transfer.text(key))) {
        transfer.carried(key);
        return transfer.integer(key, 1);
      }
    return {};
  };
  const auto ranks = count({"nproc-per-node", "num-gpus"});
  const auto nodes = count({"nnodes", "num-nodes"});
  if (!ranks) return {};
  return product({*ranks, nodes.value_or(1)});
}

Axes convert_axes(Transfer& transfer) {
  Axes axes;
  axes.tensor_origin =
      transfer.has("model-parallel-size") ? "model-parallel-size" : "tensor-model-parallel-size";
  axes.pipeline_origin = "pipeline-model-parallel-size";
  axes.tensor = transfer.integer(axes.tensor_origin, 1);
  axes.pipeline = transfer.integer(axes.pipeline_origin, 1);
  if (axes.tensor < 1 || axes.pipeline < 1)
    throw_error(ErrorCode::bad_input, "parallel sizes are counts from 1 on");
  transfer.carried(axes.tensor_origin);
  transfer.carried(axes.pipeline_origin);
  read_sequence(transfer, {"context-parallel-size", "ds-sequence-parallel-size"}, axes);
  axes.data = data_ranks(transfer, ranks_of_launcher(transfer), axes).value_or(1);
  axes.data_origin = data_origin(transfer.given().ranks ? "--ranks" : "ranks of the launcher", axes);
  return axes;
}

void convert_layout(Transfer& transfer, const Axes& axes) {
  write_axes(transfer, axes);
  if (axes.tensor > 1 && flag(transfer, "sequence-parallel")) {
    transfer.set("strategy.tensor.sequence", true, "sequence-parallel");
    transfer.carried("sequence-parallel");
  }
  const std::int64_t layers = transfer.integer("num-layers", 0);
  const std::int64_t virtual_layers = transfer.integer("num-layers-per-virtual-pipeline-stage", 0);
  std::int64_t chunks = transfer.integer("num-virtual-stages-per-pipeline-rank", 1);
  if (virtual_layers > 0) chunks = layers / axes.pipeline / virtual_layers;
  for (const char* key : {"num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank"})
    if (transfer.has(key) && axes.pipeline > 1)
      transfer.carried(key);
    else
      transfer.without_effect(key, "one rank along pp has no stages");
  if (axes.pipeline > 1) {
    transfer.set_text("strategy.pipeline.schedule", chunks > 1 ? "interleaved" : "1f1b",
                      axes.pipeline_origin);
    if (chunks > 1) transfer.set("strategy.pipeline.chunks", chunks, "virtual stages of a rank");
  }
  const std::string sharding = transfer.text("data-parallel-sharding-strategy");
  std::int64_t stage = flag(transfer, "use-distributed-optimizer") ? 1 : 0;
  if (sharding == "optim_grads") stage = 2;
  if (sharding == "optim_grads_params" || flag(transfer, "use-torch-fsdp2")) stage = 3;
  stage = std::max(stage, transfer.integer("zero-stage", 0));
  for (const char* key : {"use-distributed-optimizer", "data-parallel-sharding-strategy", "use-torch-fsdp2",
                          "use-custom-fsdp", "use-megatron-fsdp", "zero-stage"})
    if (axes.data > 1)
      transfer.carried(key);
    else
      transfer.without_effect(key, "one rank shares nothing out");
  write_zero(transfer, axes, stage, stage == 1 ? "use-distributed-optimizer" : "how parameters are sharded");
  for (const char* key : {"checkpoint-activations", "recompute-granularity"})
    if (transfer.is(key, on) || transfer.is(key, "full")) {
      transfer.set_text("strategy.recompute.mode", "full", key);
      transfer.carried(key);
    }
}

// Reads "0.2 A 0.3 B", or one prefix.
void convert_data(Transfer& transfer) {
  if (!transfer.has("data-path")) return;
  const std::string path = transfer.text("data-path");
  std::vector<std::string> words;
  for (const std::string_view word : split(path, ' '))
    if (!word.empty()) words.emplace_back(word);
  const bool weighted = words.size() > 1 && is_number(words[0]);
  const std::size_t step = weighted ? 2 : 1;
  if (words.size() % step != 0) throw_error(ErrorCode::bad_input, "data-path has a weight without a prefix");
  for (std::size_t i = 0; i < words.size(); i += step) {
    const std::string at = i == 0 ? "data." : detail::concat("data.blend.", 1000 + i, ".");
    transfer.set_text(at + "plugin", "tokens", "data-path");
    transfer.set_text(at + "path", words[i + step - 1], "data-path");
    if (weighted) transfer.set(at + "weight", value_of(words[i]), "data-path");
  }
  transfer.carried("data-path");
}

// Reads samples for validation and for a test, which is not trained on either.
void convert_validation(Transfer& transfer) {
  if (transfer.is_left_open("split")) return;
  const std::string parts = transfer.text("split", "969,30,1");
  std::vector<double> shares;
  for (const std::string_view part : split(parts, ','))
    if (const auto share = recipe::parse_value(recipe::OptionType::real, part))
      shares.push_back(std::get<double>(*share));
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  if (shares.empty() || all <= 0 || shares[0] / all < 0.5) {
    transfer.refuse("split", "data.validation is at most half");
    return;
  }
  const double kept = 1 - shares[0] / all;
  transfer.set("data.validation", std::round(kept * 1e9) / 1e9,
               transfer.has("split") ? "split, all but the first share" : "default of Megatron-LM's split");
  transfer.carried("split");
  const bool evaluates = kept > 0 && transfer.number("eval-iters").value_or(100) > 0;
  for (const char* key : {"eval-interval", "eval-iters"})
    if (!evaluates) transfer.without_effect(key, "nothing is kept to validate on");
  if (!evaluates) return;
  transfer.take("eval-interval", "eval.every", "1000");
  transfer.take("eval-iters", "eval.batches", "100");
}

bool has_experts(const Transfer& transfer) {
  if (!transfer.has("num-experts") || transfer.is("num-experts", "1")) return false;
  if (!flag(transfer, "swiglu"))
    throw_error(ErrorCode::unsupported, "--num-experts ", printable(transfer.text("num-experts"), 60),
                " without --swiglu: the MLPs of experts are SwiGLU");
  return true;
}

void convert_observers(Transfer& transfer) {
  transfer.take("log-interval", "observer.console.every", "100");
  if (transfer.is_left_open("tensorboard-dir"))
    transfer.set_plugin("observer.tensorboard", "tensorboard-dir");
  else if (transfer.has("tensorboard-dir"))
    transfer.set_text("observer.tensorboard.path", transfer.text("tensorboard-dir"), "tensorboard-dir"),
        transfer.carried("tensorboard-dir");
}

void convert_all(Transfer& transfer, const ShellCommand& command) {
  read_options(transfer, command.launcher);
  read_options(transfer, command.arguments);
  leave_open(transfer, command.branched);
  for (const Foreign& each : foreign)
    if (transfer.has(each.key) && !transfer.is(each.key, each.same))
      throw_error(ErrorCode::unsupported, "--", each.key, " ", printable(transfer.text(each.key), 60), ": ",
                  other_model);
  convert_model(transfer);
  const Axes axes = convert_axes(transfer);
  convert_vocabulary(transfer, axes.tensor);
  convert_layout(transfer, axes);
  if (has_experts(transfer)) convert_experts(transfer, axes);
  convert_training(transfer);
  convert_precision(transfer);
  convert_data(transfer);
  convert_validation(transfer);
  convert_observers(transfer);
  transfer.apply(rules());
}

}  // namespace
}  // namespace megatron

void convert_megatron(Transfer& transfer, const ShellCommand& command) {
  megatron::convert_all(transfer, command);
}

}  // namespace prun::convert

namespace prun::convert::megatron {
namespace {

// ------------------------------------------------------------------- megatron model
// Carries Megatron-LM's arguments of the model over to gpt or llama.

void convert_flag(Transfer& transfer, std::string_view key, std::string_view to, bool value) {
  transfer.set(to, value, flag(transfer, key) ? std::string(key) : detail::concat("no ", key));
  transfer.carried(key);
}

// Converts a setting that says how the model is built: it is carried over where prun's is built so too.
void differs(Transfer& transfer, bool there_too, const char* key, const char* value, const char* why) {
  if (there_too)
    transfer.has(key) ? transfer.carried(key) : void();
  else if (transfer.has(key))
    transfer.refuse(key, why);
  else
    transfer.refuse_default(key, value, why);
}

bool has_rope(Transfer& transfer) {
  return transfer.is("position-embedding-type", "rope") || flag(transfer, "use-rotary-position-embeddings");
}

void convert_sizes(Transfer& transfer) {
  transfer.take("num-layers", "model.layers");
  transfer.take("hidden-size", "model.hidden");
  transfer.take("num-attention-heads", "model.heads");
  transfer.take("seq-length", "model.seq");
  transfer.take(transfer.has("max-absolute-position-embeddings") ? "max-absolute-position-embeddings"
                                                                 : "max-position-embeddings",
                "model.positions");
  transfer.take("ffn-hidden-size", "model.ffn");
  const char* const eps = transfer.has("layernorm-epsilon") ? "layernorm-epsilon" : "norm-epsilon";
  transfer.take(eps, "model.norm_eps", "1e-5");
  convert_flag(transfer, "untie-embeddings-and-output-weights", "model.tied",
               !flag(transfer, "untie-embeddings-and-output-weights"));
}

void convert_llama_sizes(Transfer& transfer) {
  if (flag(transfer, "group-query-attention") || transfer.has("num-query-groups"))
    transfer.take("num-query-groups", "model.kv_heads", "1");
  transfer.take("kv-channels", "model.head_dim");
  transfer.take("rotary-base", "model.rope_base", "10000");
  convert_flag(transfer, "add-qkv-bias", "model.qkv_bias", flag(transfer, "add-qkv-bias"));
  if (flag(transfer, "use-rope-scaling")) {
    transfer.take("rope-scaling-factor", "model.rope_factor", "8");
    transfer.carried("use-rope-scaling");
  }
  const double hidden = transfer.number("hidden-size").value_or(0);
  if (!transfer.has("ffn-hidden-size") && hidden > 0 && flag(transfer, "swiglu"))
    transfer.set("model.ffn", whole(4 * hidden * 2 / 3) / 64 * 64,
                 "default of Megatron-LM's ffn-hidden-size with swiglu");
}

bool predicts_further(const Transfer& transfer) {
  return transfer.has("mtp-num-layers") && !transfer.is("mtp-num-layers", "0");
}

void convert_llama(Transfer& transfer) {
  convert_llama_sizes(transfer);
  if (predicts_further(transfer)) {
    transfer.take("mtp-num-layers", "model.mtp_layers");
    transfer.take("mtp-loss-scaling-factor", "model.mtp_loss", "0.1");
  }
  differs(transfer, flag(transfer, "swiglu"), "swiglu", "off", "the MLP of llama is SwiGLU");
  differs(transfer, has_rope(transfer), "position-embedding-type", "learned_absolute",
          "llama turns queries and keys by their positions");
  differs(transfer, transfer.is("normalization", "RMSNorm"), "normalization", "LayerNorm",
          "llama norms by RMSNorm");
  differs(transfer, flag(transfer, "disable-bias-linear"), "disable-bias-linear", "off",
          "llama's products have no bias, but for qkv_bias");
  if (flag(transfer, "use-rotary-position-embeddings")) transfer.carried("use-rotary-position-embeddings");
  if (transfer.number("hidden-dropout").value_or(0.1) > 0)
    differs(transfer, false, "hidden-dropout", "0.1", "llama has no dropout");
  else
    transfer.without_effect("hidden-dropout", "as here");
}

void convert_gpt(Transfer& transfer) {
  const double hidden = transfer.number("hidden-size").value_or(0),
               heads = transfer.number("num-attention-heads").value_or(1);
  transfer.take("hidden-dropout", "model.dropout", "0.1");
  if (predicts_further(transfer)) transfer.refuse("mtp-num-layers", "gpt predicts the next token alone");
  if (flag(transfer, "disable-bias-linear"))
    transfer.refuse("disable-bias-linear", "gpt's products have biases");
  if (transfer.has("kv-channels") && transfer.number("kv-channels") != hidden / heads)
    transfer.refuse("kv-channels", "a head of gpt is hidden / heads wide");
  else
    transfer.without_effect("kv-channels", "follows from hidden and heads");
  if (flag(transfer, "group-query-attention"))
    transfer.refuse("group-query-attention", "gpt has as many key and value heads as heads");
}

}  // namespace

void convert_model(Transfer& transfer) {
  const bool llama =
      flag(transfer, "swiglu") || has_rope(transfer) || transfer.is("normalization", "RMSNorm");
  transfer.set_text("model.plugin", llama ? "llama" : "gpt",
                    llama ? (flag(transfer, "swiglu") ? "swiglu" : "normalization and positions")
                          : "learned positions and gelu");
  convert_sizes(transfer);
  llama ? convert_llama(transfer) : convert_gpt(transfer);
  if (!predicts_further(transfer))
    transfer.take("attention-dropout", "model.attention_dropout", "0.1");
  else if (transfer.number("attention-dropout").value_or(0.1) > 0)
    differs(transfer, false, "attention-dropout", "0.1",
            "llama drops no weights of attention beside multi-token prediction");
  else
    transfer.without_effect("attention-dropout", "as here");
}

void convert_vocabulary(Transfer& transfer, std::int64_t tensor) {
  const std::int64_t multiple =
      std::max<std::int64_t>(1, product({transfer.integer("make-vocab-size-divisible-by", 128), tensor}));
  transfer.pad_vocabulary(multiple);
  if (!transfer.has("vocab-size")) return;
  transfer.set("model.vocab", transfer.padded(transfer.integer("vocab-size", 1)),
               detail::concat("vocab-size, padded to a multiple of ", multiple));
  transfer.carried("vocab-size");
}

}  // namespace prun::convert::megatron
