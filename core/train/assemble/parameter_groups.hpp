// Reads [[optimizer.group]]: which parameters are frozen, decay or learn at another rate, or by another
// optimizer.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "program/step_program.hpp"
#include "recipe/recipe.hpp"
#include "train/assemble/plugin_host.hpp"

namespace prun {

// ------------------------------------------------------------------- parameter groups

// Returns these groups in the recipe's order, which Value::optimizer counts from 1 on.
std::vector<RecipeSection> groups_with_optimizers(const Recipe& recipe);

// Applies groups: the first one whose pattern matches a parameter's name ("block.qkv.weight") decides.
class ParameterGroups {
 public:
  explicit ParameterGroups(const Recipe& recipe)
      : recipe_(recipe), groups_(recipe.sections("optimizer.group")), used_(groups_.size(), false) {}

  // Applies the groups to the parameters that were added since the last call: strategies of phase `model` see
  // the groups of the model's, and add some of their own.
  void apply(Program& program);
  // Throws an Error for each group that no parameter belongs to.
  void check_used() const;

 private:
  void apply(Value& value, const std::string& name);

  const Recipe& recipe_;
  std::vector<RecipeSection> groups_;
  std::vector<bool> used_;
  std::set<Id> done_;
};

// ------------------------------------------------------------------- purpose
// Says what a program is for.

enum class Purpose : std::uint8_t {
  training,
  evaluation,  // computes the loss of a batch, and changes nothing
  generation,  // computes a head's logits of the next token, position by position if all ops can
  windows,     // does the same for whole sequences, which may be the end of a longer text
};
inline bool makes_text(Purpose purpose) {
  return purpose == Purpose::generation || purpose == Purpose::windows;
}

// Refuses models that do not predict the next token, for a purpose that makes text.
void check_makes_text(const Recipe& recipe, PluginHost& plugins, Purpose purpose);

}  // namespace prun
