#include "plan/order/contributions.hpp"

#include <algorithm>
#include <utility>

namespace prun {

namespace {

SumMoves sum_moves(const Plan& plan, std::int32_t instance) {
  const std::int32_t clear = plan.find(FunctionKind::clear, instance);
  if (clear < 0) return {};
  const PlannedFunction& function = plan.functions[clear];
  const auto from = [&](const Piece& piece) { return function.steps[piece.first].operands.front().address; };
  for (std::size_t piece = 0; piece < function.pieces.size(); ++piece)
    if (function.steps[function.pieces[piece].first].operands.size() == 2 &&
        lasts(from(function.pieces[piece]).region))
      return {clear, static_cast<std::int32_t>(piece)};
  return {};
}

std::int32_t clearing_in_turn(const Plan& plan, std::int32_t instance, const SumMoves& moves) {
  const std::int32_t clear = plan.find(FunctionKind::clear, instance);
  if (clear >= 0 && !moves.any()) return clear;
  const std::int32_t zero = plan.find(FunctionKind::zero, instance);
  if (zero < 0) return -1;
  const std::vector<PlannedStep>& steps = plan.functions[zero].steps;
  const bool in_turn = std::any_of(steps.begin(), steps.end(), [](const PlannedStep& step) {
    return step.operands.front().address.region == Region::unreduced;
  });
  return in_turn ? zero : -1;
}

}  // namespace

Contributions::Contributions(const Plan& plan, const Work& work)
    : touched_(plan, {Region::gradient, Region::unreduced}),
      progress_(plan.instances.size()),
      lanes_(work.lanes) {
  for (std::size_t i = 0; i < progress_.size(); ++i) {
    const auto instance = static_cast<std::int32_t>(i);
    Progress& progress = progress_[i];
    progress.moves = sum_moves(plan, instance);
    progress.clearing = clearing_in_turn(plan, instance, progress.moves);
    progress.each = !progress.moves.any() && plan.find(FunctionKind::clear, instance) >= 0;
    progress.tied = plan.find(FunctionKind::tie, instance) >= 0;
  }
  for (const ScheduleCall& pass : work.calls)
    for (const PassCall& call : functions_of(plan, pass))
      for (const std::int32_t i : touched_.by(call)) {
        Progress& progress = progress_[i];
        progress.left = ++progress.all;
        Microbatch& microbatch = progress.microbatches[pass.microbatch / lanes_];
        microbatch.left = ++microbatch.all;
      }
}

std::vector<std::int32_t> Contributions::begun_by(const PassCall& call) {
  std::vector<std::int32_t> begun = touched_.by(call);
  std::erase_if(begun, [&](std::int32_t i) {
    Progress& progress = progress_[i];
    return progress.clearing < 0 || std::exchange(progress.begun, true);
  });
  return begun;
}

std::vector<std::int32_t> Contributions::completed_by(const PassCall& call, std::int32_t microbatch) {
  std::vector<std::int32_t> complete = touched_.by(call);
  std::erase_if(complete, [&](std::int32_t i) {
    Progress& progress = progress_[i];
    Microbatch& of = progress.microbatches.at(microbatch / lanes_);
    progress.partial += of.left == of.all;
    progress.partial -= --of.left == 0;
    --progress.left;
    const bool done = !progress.tied && (progress.each ? progress.partial == 0 : progress.left == 0);
    progress.begun &= !done;
    return !done;
  });
  return complete;
}

std::vector<std::int32_t> Contributions::returning_for(const PassCall& call) {
  std::vector<std::int32_t> returning = touched_.by(call);
  std::erase_if(returning, [&](std::int32_t i) {
    Progress& progress = progress_[i];
    return !progress.moves.any() || !has_sums(i) || std::exchange(progress.begun, true);
  });
  return returning;
}

std::vector<std::int32_t> Contributions::set_aside_by(const PassCall& call) {
  std::vector<std::int32_t> aside = touched_.by(call);
  std::erase_if(aside, [&](std::int32_t i) {
    Progress& progress = progress_[i];
    const bool leaves = progress.moves.any() && progress.begun && progress.partial == 0 && progress.left > 0;
    progress.begun &= !leaves;
    return !leaves;
  });
  return aside;
}

}  // namespace prun
