// Templates that are known by name, with what the assistant writes in {% generation %}.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace prun::chat {

struct BuiltIn {
  std::string_view name;
  std::string_view text;
  // These are the tokens that it calls bos_token and eos_token, where a tokenizer does not name its own.
  std::string_view bos, eos;
  // What it writes that must be tokens by themselves.
  std::array<std::string_view, 3> tokens;
};

const BuiltIn* find_built_in(std::string_view name);
std::vector<std::string> names_of_built_in();

}  // namespace prun::chat
