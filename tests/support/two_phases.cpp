// Splits the batch in one phase, and says in another which parameters it saw there: a strategy whose object
// goes from phase to phase. It takes no more microbatches than it is told.
#include "prun/plugin.hpp"

namespace prun {
namespace {

class TwoPhases final : public Strategy {
 public:
  explicit TwoPhases(const Options& options) : axis_(options.text("axis")), most_(options.integer("most")) {}

  void check(const Options& recipe, Problems problems) override {
    if (recipe.integer("batch.global") > most_)
      problems.add("most",
                   "batch.global = " + std::to_string(recipe.integer("batch.global")) + " is more than that");
    if (recipe.has("optimizer.no_such_key")) problems.add("optimizer.lr", "it has what no recipe has");
  }

  void apply(Phase phase, ProgramRef program) override {
    if (phase == Phase::shard) {
      program.split("batch", axis_);
      split_ = true;
    } else if (!split_) {
      throw_error(ErrorCode::internal, "phase ", name_of(phase), " has another object than phase shard");
    }
  }

 private:
  std::string axis_;
  std::int64_t most_;
  bool split_ = false;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::TwoPhases, "two-phases", "0.1.0",
            "Splits the batch in one phase and looks in others",
            "phase=shard,placed,state; splits=batch; axis=own",
            "axis | string | dp | | Axis of the mesh that splits the batch\n"
            "most | int | 64 | 1.. | Most samples of a step\n");
