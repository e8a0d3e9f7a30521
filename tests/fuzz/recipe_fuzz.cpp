// Feeds arbitrary bytes to the readers of schemas and recipes. Whatever happens must be an Error with a
// message, or a recipe that survives being printed and read again.
//
// With libFuzzer: clang++ -fsanitize=fuzzer,address,undefined. Elsewhere: -DPRUN_FUZZ_MAIN, and files as
// arguments.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "explain/explain.hpp"
#include "recipe/recipe.hpp"

namespace prun {
namespace {

constexpr std::string_view plugin_options = R"(
  layers | int     | 12 | 1..4096 | An int
  theta  | float   | 1e4 | 1..1e9 | A float
  tied   | bool    | true |       | A bool
  path   | string  | x  |         | A string
  shape  | choice  | a  | a,b     | A choice
  room   | size    |    |         | A size
  sizes  | ints    | [] | 0..9    | Ints
  betas  | floats  | [0.9] | 0..1 | Floats
  paths  | strings | [] |         | Strings
  deep.er.key | int | none |      | Nested
)";

// One plugin of every kind, named "p"; "bad" cannot be used.
PluginCatalog fuzz_catalog() {
  static const Schema schema = parse_schema(plugin_options, "fuzz plugin");
  PluginCatalog catalog;
  catalog.schema = [](std::string_view, std::string_view name) -> const Schema* {
    if (name == "bad") throw_error(ErrorCode::bad_input, "a bad plugin");
    return name == "p" || name == "auto" || name == "console" ? &schema : nullptr;
  };
  catalog.names = [](std::string_view) { return std::vector<std::string>{"p", "cpu", "console"}; };
  catalog.help = [](std::string_view, std::string_view) { return std::string("A plugin"); };
  return catalog;
}

[[noreturn]] void fail(const std::string& what) {
  std::cerr << what << "\n";
  std::abort();
}

void fuzz_schema(std::string_view text) {
  try {
    const Schema schema = parse_schema(text, "fuzzed plugin");
    if (recipe::reference_table(schema).empty()) fail("a schema without a table");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_input || *error.what() == 0) fail("a schema refused without a reason");
  }
}

void check_round_trip(const Recipe& fuzzed) {
  const std::string printed = fuzzed.resolved_toml();
  const Recipe again = Recipe::parse(printed, "printed", {}, fuzz_catalog());
  for (const RecipeSection& section : fuzzed.all_sections())
    for (const auto& entry : section.entries())
      if (!again.find(entry.path) || again.find(entry.path)->value != entry.value)
        fail(entry.path + "\n" + printed);
}

// The text up to the first zero byte is the recipe; what follows, cut at zeros, are overrides.
void fuzz_recipe(std::string_view input) {
  std::vector<std::string> parts(1);
  for (const char c : input) {
    if (c == 0 && parts.size() < 8)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  const std::vector<std::string> overrides(parts.begin() + 1, parts.end());
  std::optional<Recipe> fuzzed;
  try {
    fuzzed = Recipe::parse(parts[0], "fuzz.toml", overrides, fuzz_catalog());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_input || *error.what() == 0) fail(error.what());
    return;
  }
  check_round_trip(*fuzzed);
}

}  // namespace
}  // namespace prun

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  prun::fuzz_schema(input);
  prun::fuzz_recipe(input);
  return 0;
}

#ifdef PRUN_FUZZ_MAIN
int main(int count, char** names) {
  for (int i = 1; i < count; ++i) {
    std::ifstream file(names[i], std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    if (!file) prun::fail(std::string("cannot read ") + names[i]);
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  }
  std::cout << count - 1 << " inputs survived\n";
}
#endif
