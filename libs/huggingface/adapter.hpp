// Reads and writes adapter folders as PEFT keeps them: adapter_config.json and adapter_model.safetensors hold
// the changes of low rank that strategies have stated (Program::low_ranks), by the names that the model's own
// library has for the weights that they change.
#pragma once

#include <filesystem>
#include <string>

#include "huggingface/map.hpp"

namespace prun {

inline constexpr const char* adapter_weights_name = "adapter_model.safetensors";
inline constexpr const char* adapter_config_name = "adapter_config.json";

// Maps where `down` and `up` of each change are stored there. Throws unsupported if there is no change, or
// one of a weight that the library has no matrix for.
HuggingFaceMap adapter_map(const Program& program);

// Writes the configuration; `base` says where the weights are that it is for, as far as that is known.
std::string adapter_config_text(const Program& program, const std::string& base);

// Throws bad_input if the folder's configuration differs from what the program's changes compute, or needs
// more than they do.
void check_adapter_config(const Program& program, const std::filesystem::path& folder);

}  // namespace prun
