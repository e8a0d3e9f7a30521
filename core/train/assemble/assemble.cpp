#include "train/assemble/assemble.hpp"

#include <algorithm>

#include "train/assemble/memory_fit.hpp"
#include "train/assemble/one_host.hpp"
#include "train/assemble/plan_maker.hpp"

namespace prun {
namespace {

bool uses_drives(const Assembly& assembly) {
  return std::any_of(assembly.plans().begin(), assembly.plans().end(), has_drives);
}

bool there_is_room(const Assembly& assembly) {
  return bytes_needed(assembly) <= memory_limit(assembly) && missing_further_memory(assembly).empty() &&
         hosts_have_room(assembly);
}

// Searches for a plan that fits. The plan is exact, so whether it fits is known once it is made. What
// strategies leave to the planner is tried in their order.
class FittingSearch {
 public:
  explicit FittingSearch(PlanMaker& maker) : maker_(maker) {}

  Assembly run();
  // This belongs to the plan that was found: see Lowering.
  bool far_ahead() const { return far_ahead_; }
  const NotFitting& tried() const { return tried_; }

 private:
  bool fits_everywhere(std::size_t way);
  bool fits_ranks(std::size_t way);
  bool fits(const PlannedChoice& choice);
  void make_with_room(const PlannedChoice& choice);
  std::size_t ways() const { return made_->unlowered().requests().ways_to_fit; }

  PlanMaker& maker_;
  std::optional<Assembly> made_;        // assembly of the last try
  bool far_ahead_ = true;               // choice of the last try
  NotFitting tried_;                    // findings while no plan fitted
  std::optional<std::size_t> crowded_;  // first way that fits each rank, though not all ranks of a host
};

// Tries the ways in turn, and passes over those that cannot be combined with the rest of the recipe. If no
// way leaves hosts with room for all their ranks, it takes the first that fits each rank: the launcher knows
// how many ranks a host has.
Assembly FittingSearch::run() {
  if (fits_everywhere(0)) return std::move(*made_);
  for (std::size_t way = 1; way < ways(); ++way) {
    try {
      if (fits_everywhere(way)) return std::move(*made_);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::bad_input && error.code() != ErrorCode::unsupported) throw;
      if (tried_.refused.empty()) tried_.refused = error.what();
    }
  }
  if (!crowded_ || !fits_ranks(*crowded_)) refuse_memory(*made_, tried_);
  return std::move(*made_);
}

bool FittingSearch::fits_everywhere(std::size_t way) {
  if (!fits_ranks(way)) return false;
  if (ways() <= 1 || hosts_have_room(*made_)) return true;
  if (!crowded_) crowded_ = way;
  return false;
}

// Says whether a way fits. If the program leaves it to the planner what backward computes again, the least
// that suffices is taken; each try starts from a fresh program: strategies after that see the choice.
bool FittingSearch::fits_ranks(std::size_t way) {
  if (fits({{}, way})) return true;
  if (!chooses_recompute(made_->unlowered())) return false;
  const std::vector<RecomputeChoice> choices = recompute_choices(made_->unlowered());
  if (!fits({choices.back(), way})) return false;
  return std::any_of(choices.begin() + 1, choices.end(), [&](const RecomputeChoice& recompute) {
    return fits({recompute, way});
  });
}

bool FittingSearch::fits(const PlannedChoice& choice) {
  make_with_room(choice);
  const std::int64_t bytes = bytes_needed(*made_);
  if (tried_.needed == 0) tried_.needed = tried_.least = bytes;
  tried_.least = std::min(tried_.least, bytes);
  if (bytes > memory_limit(*made_)) return false;
  const std::string further = missing_further_memory(*made_);
  if (tried_.further.empty()) tried_.further = further;
  return further.empty();
}

// Makes the plan, if drives are used, with memory for all that keeps them busy, if there is that much.
void FittingSearch::make_with_room(const PlannedChoice& choice) {
  maker_.make(choice, true, made_);
  far_ahead_ = !uses_drives(*made_) || there_is_room(*made_);
  if (!far_ahead_) maker_.make(choice, false, made_);
}

// Adds the ramp. Steps of fewer microbatches hardly ever need more memory than the full one, so the plan is
// found without them.
void add_ramp(PlanMaker& maker, const FittingSearch& search, Assembly& assembly) {
  maker.plan_ramp(assembly, search.far_ahead());
  if (assembly.ramp().empty()) return;
  NotFitting tried = search.tried();
  tried.needed = tried.least = bytes_needed(assembly);
  tried.further = missing_further_memory(assembly);
  if (tried.needed > memory_limit(assembly) || !tried.further.empty()) refuse_memory(assembly, tried);
}

}  // namespace

Assembly assemble(Recipe recipe, PluginHost& plugins, std::int64_t rank, Purpose purpose) {
  PlanMaker maker(std::make_shared<PlannedRecipe>(std::move(recipe), plugins, rank, purpose));
  FittingSearch search(maker);
  Assembly assembly = search.run();
  add_ramp(maker, search, assembly);
  maker.prove(assembly);
  maker.leave_rest_to_saves(assembly);
  assembly.check_steps_end(false);
  return assembly;
}

Assembly assemble_unproven(Recipe recipe, PluginHost& plugins) {
  PlanMaker maker(std::make_shared<PlannedRecipe>(std::move(recipe), plugins, 0, Purpose::training));
  return FittingSearch(maker).run();
}

}  // namespace prun
