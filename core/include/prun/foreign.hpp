// SPDX-License-Identifier: Apache-2.0
// Lets a model describe Hugging Face folders: a config.json and safetensors files. A model plugin that reads
// such folders
//   - names their kinds in its trait `reads`: values of model_type, as in "reads=llama,qwen2";
//   - turns a config.json into its own options, and its options into a config.json;
//   - lists, for each of its parameters, the tensors there and how they are laid out.
// The core handles files, types, shards and checks.
//
//   struct Mine : Model {
//     static void read_config(const Options& config, ConfigWriter& options);
//     void write_config(const ModelContext& context, ConfigWriter& config) const override;
//     ForeignWeights foreign_weights() const override;
//   };
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "prun/options.hpp"

namespace prun {

// Holds the core's functions behind ConfigWriter.
struct ConfigWriterApi {
  std::uint64_t struct_size;
  void* values;
  Status (*integer)(void* values, Text key, std::int64_t value);
  Status (*number)(void* values, Text key, double value);
  Status (*flag)(void* values, Text key, bool value);
  Status (*text)(void* values, Text key, Text value);
  Status (*texts)(void* values, Text key, Array<Text> list);
  Status (*integers)(void* values, Text key, Array<std::int64_t> list);
  Status (*null)(void* values, Text key);
};

// Receives what a model writes: its own options, or members of a config.json, where "rope_scaling.factor" is
// a nested member.
class ConfigWriter {
 public:
  explicit ConfigWriter(const ConfigWriterApi& api) : api_(api) {}

  template <std::integral T>
  void set(std::string_view key, T value) {
    if constexpr (std::same_as<T, bool>)
      raise(api_.flag(api_.values, key, value));
    else
      raise(api_.integer(api_.values, key, value));
  }
  void set(std::string_view key, double value) { raise(api_.number(api_.values, key, value)); }
  void set(std::string_view key, const char* value) { raise(api_.text(api_.values, key, Text(value))); }
  void set(std::string_view key, const std::string& value) { raise(api_.text(api_.values, key, value)); }
  void set(std::string_view key, const std::vector<std::int64_t>& list) {
    raise(api_.integers(api_.values, key, {list.data(), list.size()}));
  }
  void set(std::string_view key, const std::vector<std::string>& list) {
    const std::vector<Text> texts(list.begin(), list.end());
    raise(api_.texts(api_.values, key, {texts.data(), texts.size()}));
  }
  // Writes a null member of a config.json, where others take the member's absence for a number.
  void set_null(std::string_view key) { raise(api_.null(api_.values, key)); }

 private:
  ConfigWriterApi api_;
};

// A config.json is read like options: Options::has() says whether a member is there and not null. These
// refuse values that the model does not support, by the member's name; an absent member is accepted.
inline void expect_flag(const Options& config, std::string_view key, bool value) {
  if (config.has(key) && config.flag(key) != value)
    throw_error(ErrorCode::bad_input, "'", key, "' is ", value ? "false" : "true",
                ", and this model only computes as with ", value ? "true" : "false");
}
inline void expect_text(const Options& config, std::string_view key,
                        const std::vector<std::string>& accepted) {
  if (!config.has(key)) return;
  const std::string value = config.text(key);
  for (const std::string& known : accepted)
    if (value == known) return;
  throw_error(ErrorCode::bad_input, "'", key, "' is '", value, "', and this model only computes as with '",
              accepted.front(), "'");
}
inline void expect_absent(const Options& config, std::string_view key, std::string_view meaning) {
  if (config.has(key))
    throw_error(ErrorCode::bad_input, "'", key, "' asks for ", meaning,
                ", which this model does not compute");
}

// Describes a tensor of such a folder: one of the model's parameters, or some rows of it, with its dimensions
// reordered or merged. Several entries of one parameter with the same name are one tensor there, concatenated
// along its first dimension.
struct ForeignTensor {
  std::string parameter;  // segment and name: "block.qkv.weight"
  std::string name;       // "model.layers.*.self_attn.q_proj.weight", where * is the layer
  // Names the parameter's dimensions as they are stored here, the slowest first; commas separate this
  // tensor's dimensions: "heads packed head_dim, hidden". Empty: as in the parameter.
  std::string dims = {};
  // The tensor has only elements [begin, end) of this dimension; when this is empty, it has all.
  std::string part = {};
  std::int64_t begin = 0, end = 0;
  std::int64_t first_layer = 0;  // number of the segment's first layer in the folder
  // Restricts one more dimension, as `part` does.
  struct Part {
    std::string dim = {};
    std::int64_t begin = 0, end = 0;
  } also = {};
};

struct ForeignWeights {
  // Names may begin with any of these instead of the first: {"transformer.", ""}.
  std::vector<std::string> prefixes = {};
  // Together these contain every element of every parameter exactly once.
  std::vector<ForeignTensor> tensors = {};
  // Names that match these may be there as well and are ignored. "a=b": a must equal b.
  std::vector<std::string> ignored = {};
};

// Hold the same values in the form that crosses the plugin ABI.
struct ForeignTensorView {
  Text parameter, name, dims, part;
  std::int64_t begin, end, first_layer;
  Text also;
  std::int64_t also_begin, also_end;
};
struct ForeignWeightsView {
  Array<Text> prefixes;
  Array<ForeignTensorView> tensors;
  Array<Text> ignored;
};

// Makes a copy that the caller owns.
inline ForeignWeights copy_of(const ForeignWeightsView& view) {
  const auto text = [](const Text& t) { return std::string(t.view()); };
  ForeignWeights weights;
  for (const Text& prefix : view.prefixes) weights.prefixes.push_back(text(prefix));
  for (const ForeignTensorView& t : view.tensors)
    weights.tensors.push_back({text(t.parameter),
                               text(t.name),
                               text(t.dims),
                               text(t.part),
                               t.begin,
                               t.end,
                               t.first_layer,
                               {text(t.also), t.also_begin, t.also_end}});
  for (const Text& pattern : view.ignored) weights.ignored.push_back(text(pattern));
  return weights;
}

// Owns the memory that a view points to.
class KeptForeignWeights {
 public:
  explicit KeptForeignWeights(ForeignWeights weights) : weights_(std::move(weights)) {
    for (const ForeignTensor& tensor : weights_.tensors)
      tensors_.push_back({tensor.parameter, tensor.name, tensor.dims, tensor.part, tensor.begin, tensor.end,
                          tensor.first_layer, tensor.also.dim, tensor.also.begin, tensor.also.end});
    prefixes_.assign(weights_.prefixes.begin(), weights_.prefixes.end());
    ignored_.assign(weights_.ignored.begin(), weights_.ignored.end());
  }
  KeptForeignWeights(const KeptForeignWeights&) = delete;
  KeptForeignWeights& operator=(const KeptForeignWeights&) = delete;

  ForeignWeightsView view() const {
    return {{prefixes_.data(), prefixes_.size()},
            {tensors_.data(), tensors_.size()},
            {ignored_.data(), ignored_.size()}};
  }

 private:
  ForeignWeights weights_;
  std::vector<ForeignTensorView> tensors_;
  std::vector<Text> prefixes_, ignored_;
};

}  // namespace prun
