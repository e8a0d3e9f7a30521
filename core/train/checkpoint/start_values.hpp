// Reads what parameters start from if that is not the seed (`model.init`): a Hugging Face directory, or a
// checkpoint, of which only the weights are taken.
#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "execute/plan_memory.hpp"
#include "train/assemble/assembly.hpp"

namespace prun {

// ------------------------------------------------------------------- start values

class StartValues {
 public:
  virtual ~StartValues() = default;
  // Returns false for what a strategy has added to a model whose weights do not contain it: that starts from
  // the seed.
  virtual bool has(Id parameter) const = 0;
  // Reads elements [first, first + to.size()) of a parameter of a layer.
  virtual void read(Id parameter, std::int64_t layer, std::int64_t first, std::span<float> to) const = 0;
  // Digests what all ranks must have alike.
  virtual std::string digest() const = 0;
  // Digests every byte, so that checkpoints can leave out what is there.
  virtual std::string content(std::size_t threads) const = 0;
};

// Returns null if the recipe names none. All headers have been read then: an Error says what is missing,
// damaged or of another shape, or that the recipe's model is another one than the weights were trained in.
// A strategy's additions count as missing too unless run.allow_changed names that strategy.
std::unique_ptr<StartValues> open_start_values(const Recipe& recipe, const Program& program,
                                               PluginHost& plugins);
inline std::unique_ptr<StartValues> open_start_values(const Assembly& assembly, PluginHost& plugins) {
  return open_start_values(assembly.recipe(), assembly.program(), plugins);
}

// Opens what `model.init` names, for a resumed run: values that its checkpoints leave to it. Returns null if
// they hold all.
std::unique_ptr<StartValues> open_base(const Recipe& recipe, const Program& program, PluginHost& plugins);
bool has_base(const Program& program);
// Throws if the base is not as it was when the checkpoint was saved.
void check_base(const StartValues& base, const std::string& content, const Recipe& recipe,
                std::size_t threads);

// Says whether run.allow_changed says that what this strategy adds is new: "strategy.1.plugin".
bool may_be_new(const Recipe& recipe, const std::string& added_by);
// Says what to do otherwise, as the end of a sentence.
std::string how_it_may_be_new(const Recipe& recipe, const std::string& added_by);

// ------------------------------------------------------------------- weights
// Initializes parameters.

// Fills parameters (and master copies) from `start` or, if that lacks them, from the seed and their names;
// optimizer state starts at zero.
void initialize(const Assembly& assembly, const PlanMemory& memory, const StartValues* start = nullptr);
// Fills only those parameters, from the seed, and zeroes what an optimizer keeps beside them.
void initialize_new(const Assembly& assembly, const PlanMemory& memory, const std::set<Id>& parameters);
// Initializes what no checkpoint holds (Value::in_base).
void initialize_base(const Assembly& assembly, const PlanMemory& memory, const StartValues& base);

}  // namespace prun
