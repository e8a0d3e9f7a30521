// Converts the arguments of Megatron-LM, and of its derivatives. Where they are absent Megatron's own
// defaults are written, since prun's differ.
#include <array>
#include <cmath>
#include <numeric>

#include "base/text.hpp"
#include "convert/layout.hpp"
#include "convert/megatron_experts.hpp"
#include "convert/megatron_parts.hpp"
#include "convert/sources.hpp"
#include "prun/error.hpp"
#include "recipe/value.hpp"

namespace prun::convert {
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
