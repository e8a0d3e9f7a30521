#include "huggingface/adapter.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/json.hpp"
#include "base/text.hpp"
#include "base/whole_file.hpp"

namespace prun {
namespace {

constexpr std::string_view weight_suffix = ".weight";
constexpr const char* adapter_prefix = "base_model.model.";

// Describes a matrix of the library's to which a change applies, or a part of one.
struct Changed {
  const LowRankChange* change;
  const ForeignTensorView* tensor;
  std::vector<std::string> out, in;  // dimensions of the weight, in their order there
  bool inputs_first = false;

  std::string path() const {  // of its module
    const std::string_view name = tensor->name.view();
    return std::string(name.substr(0, name.size() - weight_suffix.size()));
  }
};

std::string name_of_parameter(const Program& program, Id id) {
  const Value& value = program.value(id);
  return program.segment(value.segment).name + "." + value.name;
}

// Returns the dimensions of a tensor in groups, one for each of its own.
std::vector<std::vector<std::string>> groups_of(const Value& weight, std::string_view dims) {
  std::vector<std::vector<std::string>> groups;
  if (dims.empty())
    for (const Dim& dim : weight.dims) groups.push_back({std::string(dim.name.view())});
  for (const std::string_view group : dims.empty() ? std::vector<std::string_view>{} : split(dims, ',')) {
    groups.emplace_back();
    for (const std::string_view name : split(trim(group), ' '))
      if (!name.empty()) groups.back().emplace_back(name);
  }
  return groups;
}

bool is_of(const Program& program, const LowRankChange& change, const ForeignTensorView& tensor) {
  const Value& weight = program.value(change.weight);
  if (tensor.parameter.view() != name_of_parameter(program, change.weight)) return false;
  if (!tensor.name.view().ends_with(weight_suffix)) return false;
  if (change.part == weight.dims.size()) return true;
  return tensor.part.view() == weight.dims[change.part].name.view() && tensor.begin == change.begin &&
         tensor.end == change.end;
}

// Says whether all of a group are dimensions that the weight sums over, or none are.
std::optional<bool> are_inputs(const Value& weight, std::size_t in_dims,
                               const std::vector<std::string>& group) {
  std::size_t inputs = 0;
  for (const std::string& name : group)
    for (std::size_t d = weight.dims.size() - in_dims; d < weight.dims.size(); ++d)
      inputs += weight.dims[d].name.view() == name;
  if (inputs != 0 && inputs != group.size()) return {};
  return inputs != 0;
}

std::optional<Changed> changed_in(const Program& program, const LowRankChange& change,
                                  const ForeignTensorView& tensor) {
  const Value& weight = program.value(change.weight);
  const std::vector<std::vector<std::string>> groups = groups_of(weight, tensor.dims.view());
  if (groups.size() != 2) return {};
  const std::optional<bool> first = are_inputs(weight, change.in_dims, groups[0]),
                            second = are_inputs(weight, change.in_dims, groups[1]);
  if (!first || !second || *first == *second) return {};
  return Changed{&change, &tensor, groups[*first ? 1 : 0], groups[*first ? 0 : 1], *first};
}

// Returns the matrix that a change applies to: several parts of one tensor where the change is of a weight
// that lies there in another order.
std::vector<Changed> changed_by(const Program& program, const LowRankChange& change) {
  std::vector<Changed> parts;
  bool known = true;
  for (const ForeignTensorView& tensor : program.foreign_weights().tensors) {
    if (!is_of(program, change, tensor)) continue;
    const std::optional<Changed> part = changed_in(program, change, tensor);
    known = known && part && (parts.empty() || parts.front().path() == part->path());
    if (part) parts.push_back(*part);
  }
  if (known && !parts.empty()) return parts;
  throw_error(ErrorCode::unsupported, "cannot write an adapter folder: '", program.value(change.up).name,
              "' changes '", name_of_parameter(program, change.weight),
              "', for which the model's plugin lists no matrix of a Hugging Face folder (foreign_weights)");
}

std::vector<std::vector<Changed>> all_changed(const Program& program) {
  std::vector<std::vector<Changed>> all;
  for (const LowRankChange& change : program.low_ranks()) all.push_back(changed_by(program, change));
  if (all.empty())
    throw_error(ErrorCode::unsupported,
                "the recipe has no adapters; a strategy of phase model adds them, see docs/adapters.md");
  return all;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

// Returns the dimensions of `up`, in which its part of a dimension has another name.
std::vector<std::string> dims_of_up(const Program& program, const Changed& changed) {
  const Value &weight = program.value(changed.change->weight), &up = program.value(changed.change->up);
  std::vector<std::string> names = changed.out;
  for (std::string& name : names)
    for (std::size_t d = 0; d + 1 < up.dims.size(); ++d)
      if (weight.dims[d].name.view() == name) {
        name = up.dims[d].name.view();
        break;
      }
  return names;
}

// Returns the name by which PEFT finds modules among the model's: what follows the layer's number, or all.
std::string target_of(const std::string& path) {
  const std::size_t star = path.find("*.");
  return star == std::string::npos ? path : path.substr(star + 2);
}

std::int64_t rank_of(const Program& program, const LowRankChange& change) {
  return program.value(change.up).dims.back().extent;
}

double alpha_of(const Program& program, const LowRankChange& change) {
  return change.factor * static_cast<double>(rank_of(program, change));
}

void expect_plain(const JsonValue& root, const char* key, const std::string& where) {
  const JsonValue* const value = root.find(key);
  if (!value || value->is_null()) return;
  const bool is_off = (value->kind() == JsonKind::boolean && !value->as_bool()) ||
                      (value->is_object() && value->as_object().members().empty()) ||
                      (value->is_array() && value->as_array().empty());
  if (!is_off)
    throw_error(ErrorCode::bad_input, where, ": '", key, "' asks for what adapters here do not compute");
}

double factor_in(const JsonValue& root, std::int64_t rank) {
  const auto width = static_cast<double>(rank);
  const JsonValue* const stabilized = root.find("use_rslora");
  const bool by_root = stabilized && stabilized->kind() == JsonKind::boolean && stabilized->as_bool();
  return root.at("lora_alpha").as_double() / (by_root ? std::sqrt(width) : width);
}

}  // namespace

HuggingFaceMap adapter_map(const Program& program) {
  ForeignWeights listed;
  for (const std::vector<Changed>& parts : all_changed(program)) {
    const LowRankChange& change = *parts.front().change;
    const std::string rank(program.value(change.up).dims.back().name.view()),
        path = adapter_prefix + parts.front().path();
    const std::int64_t first_layer = parts.front().tensor->first_layer;
    listed.tensors.push_back({.parameter = name_of_parameter(program, change.down),
                              .name = path + ".lora_A.weight",
                              .dims = rank + ", " + joined(parts.front().in),
                              .first_layer = first_layer});
    for (const Changed& part : parts) {
      ForeignTensor up{.parameter = name_of_parameter(program, change.up),
                       .name = path + ".lora_B.weight",
                       .dims = joined(dims_of_up(program, part)) + ", " + rank,
                       .first_layer = first_layer};
      if (parts.size() > 1) {
        up.part = part.tensor->part.view();
        up.begin = part.tensor->begin;
        up.end = part.tensor->end;
      }
      listed.tensors.push_back(up);
    }
  }
  return {program, listed};
}

std::string adapter_config_text(const Program& program, const std::string& base) {
  const std::vector<std::vector<Changed>> all = all_changed(program);
  const LowRankChange& first = *all.front().front().change;
  std::set<std::string> targets;
  for (const std::vector<Changed>& parts : all) {
    const LowRankChange& change = *parts.front().change;
    if (rank_of(program, change) != rank_of(program, first) || change.factor != first.factor)
      throw_error(ErrorCode::unsupported,
                  "cannot write an adapter folder: the adapters have several ranks or factors, and a folder "
                  "has one; export the weights merged");
    targets.insert(target_of(parts.front().path()));
  }
  JsonWriter json;
  json.begin_object().name("auto_mapping").null();
  json.member("base_model_name_or_path", base).member("bias", "none");
  json.member("fan_in_fan_out", all.front().front().inputs_first).member("inference_mode", true);
  json.member("init_lora_weights", true).member("lora_alpha", alpha_of(program, first));
  json.member("lora_dropout", first.dropout).name("modules_to_save").null();
  json.member("peft_type", "LORA").member("r", rank_of(program, first));
  json.name("target_modules").begin_array();
  for (const std::string& target : targets) json.value(target);
  json.end_array().member("task_type", "CAUSAL_LM").member("use_dora", false).member("use_rslora", false);
  return json.end_object().take() + "\n";
}

void check_adapter_config(const Program& program, const std::filesystem::path& folder) {
  const std::string where = folder / adapter_config_name;
  const JsonValue root = parse_json(whole_file(where, JsonLimits{}.bytes), where);
  if (root.at("peft_type").as_string() != "LORA")
    throw_error(ErrorCode::bad_input, where, ": 'peft_type' is ", in_quotes(root.at("peft_type").as_string()),
                ", and adapters here are LORA's");
  if (const JsonValue* const bias = root.find("bias");
      bias && bias->is_string() && bias->as_string() != "none")
    throw_error(ErrorCode::bad_input, where, ": 'bias' is ", in_quotes(bias->as_string()),
                ", and adapters here train none");
  for (const char* const key :
       {"use_dora", "use_qalora", "modules_to_save", "rank_pattern", "alpha_pattern", "layers_to_transform",
        "trainable_token_indices", "lora_bias", "target_parameters", "layer_replication",
        "alora_invocation_tokens", "use_bdlora", "velora_config"})
    expect_plain(root, key, where);
  const std::int64_t rank = root.at("r").as_int64();
  const double factor = factor_in(root, rank);
  for (const LowRankChange& change : program.low_ranks()) {
    if (rank_of(program, change) != rank)
      throw_error(ErrorCode::bad_input, where, " has adapters of rank ", rank, ", the recipe's are of ",
                  rank_of(program, change));
    if (std::abs(change.factor - factor) > 1e-9 * std::abs(factor))
      throw_error(ErrorCode::bad_input, where, " multiplies what adapters add by ", factor,
                  ", the recipe by ", change.factor, "; set alpha (and rslora) to theirs");
  }
}

}  // namespace prun
