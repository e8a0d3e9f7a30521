#include "train/assemble/assemble.hpp"

#include <algorithm>
#include <limits>

#include "train/assemble/memory_fit.hpp"
#include "train/assemble/one_host.hpp"
#include "train/assemble/plan_maker.hpp"

namespace prun {
namespace {

bool uses_drives(const Assembly& assembly) {
  return std::any_of(assembly.plans().begin(), assembly.plans().end(), has_drives);
}

bool further_memory_suffices(const Assembly& assembly) {
  return missing_further_memory(assembly).empty() && hosts_have_room(assembly);
}

bool there_is_room(const Assembly& assembly) {
  return bytes_needed(assembly) <= memory_limit(assembly) && further_memory_suffices(assembly);
}

// Searches for a plan that fits. The plan is exact, so whether it fits is known once it is made. What
// strategies leave to the planner is tried in their order.
class FittingSearch {
 public:
  explicit FittingSearch(PlanMaker& maker) : maker_(maker) {}

  // Throws DoesNotFit.
  Assembly run();
  // Adds the other kinds of steps to the plan that was found.
  Assembly add_other_steps(Assembly found);

 private:
  bool fits_in_turn(std::size_t way);
  bool fits_everywhere(WayToFit way);
  bool fits_ranks(WayToFit way);
  bool fits(const PlannedChoice& choice);
  void make_with_room(const PlannedChoice& choice);
  bool must_speculate_less();
  WayToFit ways() const { return made_->unlowered().requests().ways_to_fit; }
  template <class Try>
  bool tried_out(const Try& fits);

  PlanMaker& maker_;
  std::optional<Assembly> made_;  // assembly of the last try
  PlannedChoice choice_;          // choices of the last try
  SpareMemory spare_;
  NotFitting tried_;                 // findings while no plan fitted
  std::optional<WayToFit> crowded_;  // first way that fits each rank, though not all ranks of a host
};

// Tries the ways in turn, and passes over those that cannot be combined with the rest of the recipe. If no
// way leaves hosts with room for all their ranks, it takes the first that fits each rank: the launcher knows
// how many ranks a host has.
Assembly FittingSearch::run() {
  if (fits_in_turn(0)) return std::move(*made_);
  const std::size_t all = ways().strategies;
  for (std::size_t way = 1; way < all; ++way)
    if (tried_out([&] { return fits_in_turn(way); })) return std::move(*made_);
  if (!crowded_ || !fits_ranks(*crowded_)) refuse_memory(*made_, tried_);
  return std::move(*made_);
}

// Says whether something fits; what is refused does not.
template <class Try>
bool FittingSearch::tried_out(const Try& fits) {
  try {
    return fits();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::bad_input && error.code() != ErrorCode::unsupported) throw;
    if (tried_.refused.empty()) tried_.refused = error.what();
    return false;
  }
}

// Tries a way of the strategies with each way of what the core leaves open beside it.
bool FittingSearch::fits_in_turn(std::size_t way) {
  if (fits_everywhere({way, 0})) return true;
  const std::size_t all = ways().sums;
  for (std::size_t sums = 1; sums < all; ++sums)
    if (tried_out([&] { return fits_everywhere({way, sums}); })) return true;
  return false;
}

bool FittingSearch::fits_everywhere(WayToFit way) {
  if (!fits_ranks(way)) return false;
  if ((ways().strategies <= 1 && ways().sums <= 1) || hosts_have_room(*made_)) return true;
  if (!crowded_) crowded_ = way;
  return false;
}

// Says whether a way fits. If the program leaves it to the planner what backward computes again, the least
// that suffices is taken; each try starts from a fresh program: strategies after that see the choice.
bool FittingSearch::fits_ranks(WayToFit way) {
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

// Makes the plan with memory for all that keeps drives busy, or as little as it takes, and for as many
// speculative updates as other uses leave room for.
void FittingSearch::make_with_room(const PlannedChoice& choice) {
  choice_ = choice;
  spare_ = {true, std::numeric_limits<std::int32_t>::max()};
  do maker_.make(choice, spare_, made_);
  while (must_speculate_less());
  spare_.far_ahead = !uses_drives(*made_) || there_is_room(*made_);
  if (!spare_.far_ahead) maker_.make(choice, spare_, made_);
}

// Lowers the number of speculative updates to what fits; false if all that are planned do.
bool FittingSearch::must_speculate_less() {
  std::int32_t planned = 0;
  for (const Plan& plan : made_->plans()) planned = std::max(planned, plan.speculated());
  spare_.speculated = std::min(spare_.speculated, speculated_that_fit(*made_));
  return spare_.speculated < planned;
}

// The other kinds do less than the full one and hardly ever need more memory, so the plan is found without
// them. If they do, fewer updates are speculative.
Assembly FittingSearch::add_other_steps(Assembly found) {
  made_.emplace(std::move(found));
  maker_.plan_other_steps(*made_, spare_);
  while (!made_->other_steps().empty() && must_speculate_less()) {
    maker_.make(choice_, spare_, made_);
    maker_.plan_other_steps(*made_, spare_);
  }
  if (made_->other_steps().empty()) return std::move(*made_);
  tried_.needed = tried_.least = bytes_needed(*made_);
  tried_.further = missing_further_memory(*made_);
  if (tried_.needed > memory_limit(*made_) || !tried_.further.empty()) refuse_memory(*made_, tried_);
  return std::move(*made_);
}

}  // namespace

Assembly assemble(Recipe recipe, PluginHost& plugins, std::int64_t rank, Purpose purpose) {
  PlanMaker maker(std::make_shared<PlannedRecipe>(std::move(recipe), plugins, rank, purpose));
  FittingSearch search(maker);
  Assembly assembly = search.add_other_steps(search.run());
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
