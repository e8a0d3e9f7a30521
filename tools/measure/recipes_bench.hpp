// Compares recipes: trains each of them, at each of some sizes, in turns, and makes one table of the results.
#pragma once

#include <string>
#include <vector>

#include "measure/setting_bench.hpp"

namespace prun {

// Describes one of the values of --each: settings over each recipe.
struct BenchedSize {
  std::string name;               // "model.layers=12"; empty where there is only one size
  std::vector<std::string> sets;  // as --set takes them
};
// Parses "KEY=V1,V2", or of several keys that vary together "KEY+KEY=V1+W1,V2+W2". Throws bad_input.
std::vector<BenchedSize> sizes_of(const std::string& each);

// Describes a recipe at a size.
struct RecipeFacts {
  std::string file, size, model, layout, device;
  std::int64_t ranks = 0, parameters = 0, global = 0, micro = 0, seq = 0;

  std::int64_t tokens() const { return global * seq; }
};
RecipeFacts facts_of(const std::string& file, const std::string& size, const Assembly& assembly);

// Holds the results of the rounds of one recipe at one size.
struct RecipeRow {
  RecipeFacts facts;
  std::vector<SettingCost> rounds;
  std::string refused;  // one line that says why there are none

  // Returns the middle of the rounds by the time of a step.
  const SettingCost& cost() const;
  // Returns how far the times of rounds lie apart, as a share of the middle one.
  double spread() const;
};

// Describes how the table was made.
struct Provenance {
  std::string command, date, version, machine;
  std::int64_t steps = 0, rounds = 0;
};

// These write the table: as text, as Markdown, as JSON and as CSV. The first recipe at the same size is what
// others are compared with.
std::string recipes_text(const std::vector<RecipeRow>& rows);
std::string recipes_markdown(const std::vector<RecipeRow>& rows, const Provenance& made);
std::string recipes_json(const std::vector<RecipeRow>& rows, const Provenance& made);
std::string recipes_csv(const std::vector<RecipeRow>& rows);

}  // namespace prun
