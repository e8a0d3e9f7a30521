#include "recipe/renamed_keys.hpp"

#include <algorithm>
#include <array>

namespace prun::recipe {
namespace {

// A key stays in its section.
constexpr std::array<RenamedKey, 19> renamed_keys = {{
    {"run.layout", "\"said\"", "run.layout", "\"recipe\""},
    {"run.compare_every", "", "run.check_replicas_every", ""},
    {"run.bundle", "", "run.bucket_bytes", ""},
    {"run.changed", "", "run.allow_changed", ""},
    {"model.turned", "", "model.rope_head_dim", ""},
    {"model.turned_pairs", "", "model.rope_interleave", ""},
    {"model.unturned_every", "", "model.nope_every", ""},
    {"model.unturned_layers", "", "model.nope_layers", ""},
    {"data.documents", "\"joined\"", "data.mask_documents", "false"},
    {"data.documents", "\"apart\"", "data.mask_documents", "true"},
    {"batch.order", "\"horizontal\"", "batch.order", "\"depth_first\""},
    {"batch.order", "\"vertical\"", "batch.order", "\"breadth_first\""},
    {"precision.products", "", "precision.matmul", ""},
    {"precision.saved", "", "precision.activations", ""},
    {"precision.weight_codes", "\"product\"", "precision.cache_weights", "false"},
    {"precision.weight_codes", "\"step\"", "precision.cache_weights", "true"},
    {"precision.gathered_inputs", "", "precision.all_gather_inputs", ""},
    {"precision.count_every", "", "precision.statistics_every", ""},
    {"precision.flushed_bound", "", "precision.underflow_warning", ""},
}};

std::string setting(std::string_view path, std::string_view value) {
  return "'" + std::string(path) + (value.empty() ? "" : " = " + std::string(value)) + "'";
}

}  // namespace

std::string RenamedKey::refusal() const {
  return "cannot read " + std::string(value.empty() ? "key " : "") + setting(path, value) +
         ": it is called " + setting(new_path, new_value) + " now; rename it";
}

const RenamedKey* find_renamed(std::string_view path, std::string_view value) {
  const auto found = std::find_if(renamed_keys.begin(), renamed_keys.end(), [&](const RenamedKey& key) {
    return key.path == path && (key.value.empty() || key.value == value);
  });
  return found == renamed_keys.end() ? nullptr : &*found;
}

std::pair<std::string, std::string> stored_setting(const std::string& path, const std::string& value) {
  const RenamedKey* const renamed = find_renamed(path, value);
  if (!renamed) return {path, value};
  return {std::string(renamed->new_path),
          renamed->new_value.empty() ? value : std::string(renamed->new_value)};
}

}  // namespace prun::recipe
