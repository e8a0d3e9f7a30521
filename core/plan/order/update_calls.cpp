#include "plan/order/update_calls.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "plan/order/time_slots.hpp"
#include "plan/work.hpp"

namespace prun {

// ------------------------------------------------------------------- call list

void CallList::add(FunctionKind kind, std::int32_t instance, std::int32_t microbatch) {
  add_function(plan_.find(kind, instance), instance, microbatch);
}

void CallList::add_function(std::int32_t function, std::int32_t instance, std::int32_t microbatch) {
  if (function >= 0) add_pieces(function, 0, piece_count(plan_, function), instance, microbatch);
}

void CallList::add_pieces(std::int32_t function, std::int32_t first, std::int32_t last, std::int32_t instance,
                          std::int32_t microbatch) {
  for (std::int32_t piece = first; piece < last; ++piece) add_piece({function, piece, instance}, microbatch);
}

void CallList::add_piece(const InstancePiece& piece, std::int32_t microbatch) {
  constexpr std::int32_t step_instance = 0;
  Call call;
  call.function = piece.function;
  call.piece = piece.piece;
  call.instance = piece.instance;
  call.microbatch = microbatch;
  if (microbatch >= 0 && piece.instance != step_instance) {
    call.slot = held_.slot;
    call.carried_slot = carried_;
    if (uses_stub(piece.instance)) call.stub_slot = held_.stub;
  }
  call.queue = queue_of(piece);
  call.position = plan_.queues[call.queue].calls++;
  plan_.calls.push_back(std::move(call));
}

bool CallList::uses_stub(std::int32_t instance) const {
  return plan_.instances[instance].is_stub() || plan_.instances[instance - 1].is_stub();
}

std::int32_t CallList::queue_of(const InstancePiece& piece) const {
  return function_at(piece.function).pieces[piece.piece].queue;
}

void CallList::add_before_exchanges(FunctionKind kind, std::int32_t instance) {
  const std::int32_t function = plan_.find(kind, instance);
  add_pieces(function, 0, exchanges_of(plan_, function).first, instance);
}

void CallList::add_behind_exchanges(FunctionKind kind, const Bundle& bundle) {
  for (const std::int32_t i : bundle) {
    const std::int32_t function = plan_.find(kind, i);
    add_pieces(function, exchanges_of(plan_, function).last, piece_count(plan_, function), i);
  }
}

void CallList::add_exchanges(FunctionKind kind, const Bundle& bundle) {
  std::vector<std::vector<InstancePiece>> left;  // pieces by instance, the next one last
  for (const std::int32_t i : bundle) {
    const std::int32_t function = plan_.find(kind, i);
    const Exchanges exchanges = exchanges_of(plan_, function);
    left.emplace_back();
    for (std::int32_t piece = exchanges.last; piece-- > exchanges.first;)
      left.back().push_back({function, piece, i});
  }
  for (;;) {
    std::erase_if(left, [](const std::vector<InstancePiece>& pieces) { return pieces.empty(); });
    if (left.empty()) return;
    const std::int32_t queue = queue_of(left.front().back());
    std::vector<InstancePiece> at_once;
    for (std::vector<InstancePiece>& pieces : left)
      if (queue_of(pieces.back()) == queue) {
        at_once.push_back(pieces.back());
        pieces.pop_back();
      }
    const InstancePiece first = at_once.front();
    add_piece(at_once.size() == 1 ? first : InstancePiece{joint_function(plan_, at_once), 0, first.instance});
  }
}

namespace {

// ------------------------------------------------------------------- update calls

constexpr std::int32_t step_instance = 0;

void add_values_of(const Plan& plan, FunctionKind kind, std::int32_t instance, std::set<Id>& values) {
  const std::int32_t function = plan.find(kind, instance);
  for (std::int32_t piece = 0; function >= 0 && piece < piece_count(plan, function); ++piece)
    each_value(plan, function, piece, [&](Id value) { values.insert(value); });
}

}  // namespace

UpdateCalls::UpdateCalls(const Plan& plan, std::span<const Bundle> bundles, bool together,
                         std::int32_t speculated, CallList& calls)
    : plan_(plan),
      bundles_(bundles),
      calls_(calls),
      are_free_(!together && need_nothing_of_the_norm()),
      may_speculate_(together || are_free_ ? 0 : speculated) {
  for (const Bundle& bundle : bundles) updated_.insert(updated_.end(), bundle.begin(), bundle.end());
  left_.insert(updated_.begin(), updated_.end());
}

// Returns true if updates may come before the norm: they touch nothing that `finish` does, they have no
// collectives, and either gradients are summed as they are complete or another device updates.
bool UpdateCalls::need_nothing_of_the_norm() const {
  std::set<Id> of_finish, of_updates;
  add_values_of(plan_, FunctionKind::finish, step_instance, of_finish);
  add_values_of(plan_, FunctionKind::update, step_instance, of_updates);
  bool free = !of_updates.empty();
  for (const std::int32_t i : held_instances(plan_)) {
    const std::int32_t function = plan_.find(FunctionKind::update, i);
    if (function < 0) continue;
    add_values_of(plan_, FunctionKind::update, i, of_updates);
    const Exchanges exchanges = exchanges_of(plan_, function);
    free &= exchanges.first == exchanges.last &&
            (plan_.find(FunctionKind::reduce, i) >= 0 || is_updated_elsewhere(i));
  }
  return free && std::none_of(of_updates.begin(), of_updates.end(),
                              [&](Id value) { return of_finish.contains(value); });
}

// Returns true for updates that are left to the end of the step: one in four of those on another device. They
// overlap with the next forward, which takes about a quarter of the time of both passes; so the others keep
// up with backward, and what forward needs first is ready first. Updates whose gradients occupy memory that
// others need are never put off.
bool UpdateCalls::is_put_off(std::int32_t instance) const {
  constexpr std::ptrdiff_t one_in = 4;
  const std::ptrdiff_t place = std::find(updated_.begin(), updated_.end(), instance) - updated_.begin();
  return place > 0 && place % one_in == 0 && is_updated_elsewhere(instance) && !reads_arrived(instance);
}

// Returns true if an update reads gradients from memory that other instances need after it.
bool UpdateCalls::reads_arrived(std::int32_t instance) const {
  return touches_arrived(plan_.functions[plan_.find(FunctionKind::update, instance)]);
}

bool UpdateCalls::is_updated_elsewhere(std::int32_t instance) const {
  const std::int32_t function = plan_.find(FunctionKind::update, instance);
  if (function < 0) return false;
  const std::vector<Piece>& all = plan_.functions[function].pieces;
  return std::any_of(all.begin(), all.end(), [&](const Piece& piece) {
    const QueueInfo& queue = plan_.queues[piece.queue];
    return queue.workers && queue.device != 0;
  });
}

// Returns true if an update's collectives are of scratch, which all instances share.
bool UpdateCalls::exchanges_scratch(std::int32_t instance) const {
  const std::int32_t function = plan_.find(FunctionKind::update, instance);
  if (function < 0) return false;
  const PlannedFunction& update = plan_.functions[function];
  return std::any_of(update.steps.begin(), update.steps.end(), [&](const PlannedStep& step) {
    return step.exchange &&
           (step.exchange->in.region == update.scratch || step.exchange->out.region == update.scratch);
  });
}

void UpdateCalls::complete(const Bundle& bundle) {
  if (!are_free_) return speculate(bundle);
  for (const std::int32_t i : bundle)
    if (!is_put_off(i) && left_.erase(i) > 0) {
      begin();
      calls_.add(FunctionKind::update, i);
    }
}

void UpdateCalls::speculate(const Bundle& bundle) {
  for (const std::int32_t i : bundle) {
    if (may_speculate_ == 0 || plan_.find(FunctionKind::speculate, i) < 0) continue;
    begin_speculation();
    calls_.add(FunctionKind::speculate, i);
    speculated_.insert(i);
    --may_speculate_;
  }
}

void UpdateCalls::update_the_rest() {
  begin();
  if (are_free_)
    for (const std::int32_t i : left_) calls_.add(FunctionKind::update, i);
  else
    for (const Bundle& bundle : bundles_) update(bundle);
}

// Copies what all updates read to their device: first what is known before the norm; begin() the rest.
void UpdateCalls::begin_speculation() {
  if (!std::exchange(begun_speculation_, true)) calls_.add(FunctionKind::speculate, step_instance);
}
void UpdateCalls::begin() {
  begin_speculation();
  if (!std::exchange(begun_, true)) calls_.add(FunctionKind::update, step_instance);
}

// Adds the updates of a bundle. Their collectives are joined unless they are of scratch, which the next
// instance would overwrite before this one's later pieces read it.
void UpdateCalls::update(Bundle bundle) {
  for (const std::int32_t i : bundle)
    if (speculated_.contains(i)) calls_.add(FunctionKind::settle, i);
  std::erase_if(bundle, [&](std::int32_t i) { return speculated_.contains(i); });
  if (std::any_of(bundle.begin(), bundle.end(), [&](std::int32_t i) { return exchanges_scratch(i); })) {
    for (const std::int32_t i : bundle) calls_.add(FunctionKind::update, i);
    return;
  }
  for (const std::int32_t i : bundle) calls_.add_before_exchanges(FunctionKind::update, i);
  calls_.add_exchanges(FunctionKind::update, bundle);
  calls_.add_behind_exchanges(FunctionKind::update, bundle);
}

// ------------------------------------------------------------------- pass calls

std::vector<PassCall> functions_of(const Plan& plan, const ScheduleCall& call) {
  const Chunk& chunk = plan.chunks[call.chunk];
  std::vector<PassCall> list;
  const auto add = [&](FunctionKind kind, std::int32_t instance) {
    if (const std::int32_t function = plan.find(kind, instance); function >= 0)
      list.push_back({function, instance});
  };
  if (call.pass == Pass::forward) {
    for (std::int32_t i = chunk.first; i < chunk.last; ++i) add(FunctionKind::forward, i);
    return list;
  }
  for (std::int32_t i = chunk.last; i-- > chunk.first;) {
    if (call.pass != Pass::backward_weight) add(FunctionKind::backward, i);
    if (call.pass != Pass::backward_input) add(FunctionKind::backward_weight, i);
  }
  return list;
}

TouchedRegions::TouchedRegions(const Plan& plan, std::initializer_list<Region> wanted) {
  for (const PlannedFunction& function : plan.functions) {
    std::set<Target> found;
    for (const PlannedStep& step : function.steps)
      for (const PlannedOperand& operand : step.operands)
        if (operand.value != none &&
            std::find(wanted.begin(), wanted.end(), operand.address.region) != wanted.end())
          found.insert({operand.address.whose, operand.address.instance});
    targets_.emplace_back(found.begin(), found.end());
  }
}

std::vector<std::int32_t> TouchedRegions::by(const PassCall& call) const {
  std::vector<std::int32_t> instances;
  for (const auto& [whose, instance] : targets_[call.function]) {
    const std::int32_t at = whose == Whose::fixed ? instance : call.instance;
    if (std::find(instances.begin(), instances.end(), at) == instances.end()) instances.push_back(at);
  }
  return instances;
}

namespace {

Region region_of_gathered(const Plan& plan) {
  for (const PlannedFunction& function : plan.functions)
    for (const PlannedStep& step : function.steps)
      for (const PlannedOperand& operand : step.operands)
        if (operand.value != none && operand.address.region == Region::gathered) return Region::gathered;
  return Region::parameter;
}

}  // namespace

TouchedGathered::TouchedGathered(const Plan& plan)
    : plan_(plan), touched_(plan, {region_of_gathered(plan)}) {}

std::vector<std::int32_t> TouchedGathered::by(const PassCall& call) const {
  std::vector<std::int32_t> instances = touched_.by(call);
  std::erase_if(instances, [&](std::int32_t i) { return plan_.find(FunctionKind::gather, i) < 0; });
  return instances;
}

namespace {

// ------------------------------------------------------------------- contributions

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
      interleave_(work.interleave) {
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
        Microbatch& microbatch = progress.microbatches[pass.microbatch / interleave_];
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
    Microbatch& of = progress.microbatches.at(microbatch / interleave_);
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
