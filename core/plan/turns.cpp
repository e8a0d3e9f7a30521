#include "plan/turns.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

namespace prun {

std::vector<PassCall> functions_of(const Plan& plan, const ScheduleCall& call) {
  const Chunk& chunk = plan.chunks[static_cast<std::size_t>(call.chunk)];
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

// ---------------------------------------------------------------- what a call touches

Touched::Touched(const Plan& plan, std::initializer_list<Region> wanted) {
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

std::vector<std::int32_t> Touched::by(const PassCall& call) const {
  std::vector<std::int32_t> instances;
  for (const auto& [whose, instance] : targets_[static_cast<std::size_t>(call.function)]) {
    const std::int32_t at = whose == Whose::fixed ? instance : call.instance;
    if (std::find(instances.begin(), instances.end(), at) == instances.end()) instances.push_back(at);
  }
  return instances;
}

// ---------------------------------------------------------------- gradients

std::int32_t clearing_in_turn(const Plan& plan, std::int32_t instance) {
  if (const std::int32_t clear = plan.find(FunctionKind::clear, instance); clear >= 0) return clear;
  const std::int32_t zero = plan.find(FunctionKind::zero, instance);
  if (zero < 0) return -1;
  const std::vector<PlannedStep>& steps = plan.functions[static_cast<std::size_t>(zero)].steps;
  const bool in_turn = std::any_of(steps.begin(), steps.end(), [](const PlannedStep& step) {
    return step.operands.front().address.region == Region::unreduced;
  });
  return in_turn ? zero : -1;
}

Contributions::Contributions(const Plan& plan, const Work& work)
    : touched_(plan, {Region::gradient, Region::unreduced}), progress_(plan.instances.size()) {
  for (std::size_t i = 0; i < progress_.size(); ++i) {
    progress_[i].each = plan.find(FunctionKind::clear, static_cast<std::int32_t>(i)) >= 0;
    progress_[i].in_turn = clearing_in_turn(plan, static_cast<std::int32_t>(i)) >= 0;
    progress_[i].tied = plan.find(FunctionKind::tie, static_cast<std::int32_t>(i)) >= 0;
  }
  for (const ScheduleCall& pass : work.calls)
    for (const PassCall& call : functions_of(plan, pass))
      for (const std::int32_t i : touched_.by(call)) {
        Progress& progress = progress_[static_cast<std::size_t>(i)];
        ++progress.left;
        Microbatch& microbatch = progress.microbatches[pass.microbatch];
        microbatch.left = ++microbatch.all;
      }
}

std::vector<std::int32_t> Contributions::begun_by(const PassCall& call) {
  std::vector<std::int32_t> begun = touched_.by(call);
  std::erase_if(begun, [&](std::int32_t i) {
    Progress& progress = progress_[static_cast<std::size_t>(i)];
    return !progress.in_turn || std::exchange(progress.begun, true);
  });
  return begun;
}

std::vector<std::int32_t> Contributions::completed_by(const PassCall& call, std::int32_t microbatch) {
  std::vector<std::int32_t> complete = touched_.by(call);
  std::erase_if(complete, [&](std::int32_t i) {
    Progress& progress = progress_[static_cast<std::size_t>(i)];
    Microbatch& of = progress.microbatches.at(microbatch);
    progress.partial += of.left == of.all;
    progress.partial -= --of.left == 0;
    --progress.left;
    const bool done = !progress.tied && (progress.each ? progress.partial == 0 : progress.left == 0);
    progress.begun &= !done;
    return !done;
  });
  return complete;
}

// ---------------------------------------------------------------- turns

namespace {

Bundle both_of(Bundle bundle, const Bundle& more) {
  for (const std::int32_t i : more)
    if (std::find(bundle.begin(), bundle.end(), i) == bundle.end()) bundle.push_back(i);
  return bundle;
}

// What is used together may grow as long as it and what is used before or after it have no more memory than
// two bundles, or than the largest two need that follow each other.
class Uses {
 public:
  Uses(std::vector<Bundle> calls, const Bundling& bundling)
      : calls_(std::move(calls)), bundling_(bundling), room_(2 * bundling.most()) {
    for (std::size_t i = 1; i < calls_.size(); ++i) room_ = std::max(room_, bytes(calls_[i - 1], calls_[i]));
  }

  GatheredUses run() {
    GatheredUses uses;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const Bundle before = uses.size() > 1 ? uses[uses.size() - 2].instances : Bundle{};
      if (uses.empty() || !may_join(before, uses.back().instances, i))
        uses.push_back({calls_[i], 1});
      else
        uses.back() = {both_of(std::move(uses.back().instances), calls_[i]), uses.back().calls + 1};
    }
    return uses;
  }

 private:
  std::int64_t bytes(const Bundle& a, const Bundle& b) const { return bundling_.bytes(both_of(a, b)); }

  bool may_join(const Bundle& before, const Bundle& use, std::size_t call) const {
    const Bundle both = both_of(use, calls_[call]);
    if (both.size() == use.size()) return true;
    const Bundle after = call + 1 < calls_.size() ? calls_[call + 1] : Bundle{};
    return bundling_.takes(both) && bytes(before, both) <= room_ && bytes(both, after) <= room_;
  }

  std::vector<Bundle> calls_;  // what each touches
  const Bundling& bundling_;
  std::int64_t room_;
};

}  // namespace

GatheredUses gathered_uses(const Plan& plan, const Work& work, const Bundling& bundling) {
  const Touched touched(plan, {Region::gathered});
  std::vector<Bundle> calls;
  for (const ScheduleCall& pass : work.calls)
    for (const PassCall& call : functions_of(plan, pass))
      if (Bundle instances = touched.by(call); !instances.empty()) calls.push_back(std::move(instances));
  return Uses(std::move(calls), bundling).run();
}

std::vector<Bundle> reduced_together(const Plan& plan, const Work& work, const Bundling& bundling) {
  Contributions contributions(plan, work);
  std::vector<Bundle> reduced;
  const auto reduces = [&](std::int32_t i) { return plan.find(FunctionKind::reduce, i) >= 0; };
  const auto add = [&](const std::vector<std::int32_t>& complete) {
    for (Bundle& bundle : bundling.of(complete)) reduced.push_back(std::move(bundle));
  };
  for (const ScheduleCall& pass : work.calls) {
    std::vector<std::int32_t> complete;
    for (const PassCall& call : functions_of(plan, pass))
      for (const std::int32_t i : contributions.completed_by(call, pass.microbatch))
        if (reduces(i)) complete.push_back(i);
    add(complete);
  }
  std::vector<std::int32_t> tied;
  for (std::size_t i = 0; i < plan.instances.size(); ++i)
    if (const auto at = static_cast<std::int32_t>(i);
        !plan.instances[i].receive_stub && plan.find(FunctionKind::tie, at) >= 0 && reduces(at))
      tied.push_back(at);
  add(tied);
  return reduced;
}

bool Turns::overlap(std::int32_t a, std::int32_t b) const {
  const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
  return offsets.of[x] < offsets.of[y] + bytes[y] && offsets.of[y] < offsets.of[x] + bytes[x];
}

namespace {

// Pairs of instances that need their memory at the same time. What needs none is in nobody's way. A pair is
// found once a microbatch: those that come again are dropped before they take much memory.
class Together {
 public:
  explicit Together(std::span<const std::int64_t> bytes) {
    for (const std::int64_t of : bytes) needs_none_.push_back(of == 0);
  }

  void add(std::int32_t a, std::int32_t b) {
    if (a == b || needs_none(a) || needs_none(b)) return;
    pairs_.emplace_back(std::minmax(a, b));
    if (pairs_.size() < drop_at_) return;
    drop_repeated();
    drop_at_ = std::max(drop_at_, 2 * pairs_.size());
  }
  void add(const Bundle& some, const Bundle& others) {
    for (const std::int32_t a : some)
      for (std::size_t i = 0; !needs_none(a) && i < others.size(); ++i) add(a, others[i]);
  }
  Conflicts of(std::size_t instances) {
    drop_repeated();
    Conflicts conflicts(instances);
    for (const auto& [a, b] : pairs_) conflicts.add(static_cast<std::size_t>(a), static_cast<std::size_t>(b));
    return conflicts;
  }

 private:
  bool needs_none(std::int32_t instance) const {
    const auto at = static_cast<std::size_t>(instance);
    return at < needs_none_.size() && needs_none_[at];
  }
  void drop_repeated() {
    std::sort(pairs_.begin(), pairs_.end());
    pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
  }

  std::vector<std::pair<std::int32_t, std::int32_t>> pairs_;
  std::size_t drop_at_ = 4096;
  std::vector<bool> needs_none_;
};

Turns turns_of(std::vector<std::int64_t> bytes, Together together) {
  Offsets offsets = assign_offsets(bytes, together.of(bytes.size()));
  return {std::move(bytes), std::move(offsets)};
}

}  // namespace

Turns take_gathered_turns(const GatheredUses& uses, std::vector<std::int64_t> bytes) {
  Together together(bytes);
  for (std::size_t use = 0; use < uses.size(); ++use) {
    together.add(uses[use].instances, uses[use].instances);
    if (use > 0) together.add(uses[use - 1].instances, uses[use].instances);
  }
  return turns_of(std::move(bytes), std::move(together));
}

namespace {

bool is_pass(FunctionKind kind) {
  return kind == FunctionKind::forward || kind == FunctionKind::backward ||
         kind == FunctionKind::backward_weight;
}

}  // namespace

Turns take_unreduced_turns(const Plan& plan, const Work& work, std::span<const Bundle> reduced,
                           std::vector<std::int64_t> bytes) {
  const std::size_t instances = bytes.size();
  // As what embedding and head do: what the layers of the pass before have left has arrived by then, so that
  // nobody waits for that memory.
  const auto is_once_a_pass = [&](const PlannedFunction& function) {
    return is_pass(function.kind) &&
           std::count_if(plan.instances.begin(), plan.instances.end(), [&](const Instance& instance) {
             return instance.segment == function.segment && !instance.receive_stub;
           }) == 1;
  };
  const auto scratch_of = [&](std::int32_t function) {
    return static_cast<std::int32_t>(instances) + function;
  };
  Contributions contributions(plan, work);
  Together together(bytes);
  Bundle open, travelling;
  auto next = reduced.begin();
  for (const ScheduleCall& pass : work.calls)
    for (const PassCall& call : functions_of(plan, pass)) {
      const Bundle all_begun = contributions.begun_by(call);
      // They come back before forward begins others: see order_calls().
      if (pass.pass == Pass::forward && !all_begun.empty()) travelling.clear();
      for (const std::int32_t begun : all_begun) {
        open.push_back(begun);
        together.add({begun}, open);
        together.add({begun}, travelling);
      }
      for (const Bundle* const here : {&open, &travelling}) together.add(*here, {scratch_of(call.function)});
      for (const std::int32_t complete : contributions.completed_by(call, pass.microbatch)) {
        if (next == reduced.end() || next->back() != complete) continue;
        travelling = *next++;
        for (const std::int32_t i : travelling) std::erase(open, i);
      }
    }
  for (std::size_t f = 0; f < plan.functions.size(); ++f) {
    const PlannedFunction& function = plan.functions[f];
    const bool scratch = function.scratch == Region::scratch && !function.scratch_bytes.empty();
    bytes.push_back(scratch ? function.scratch_bytes.front() : 0);
    if (bytes.back() == 0 || is_once_a_pass(function)) continue;
    for (std::size_t i = 0; i < instances; ++i)
      together.add(static_cast<std::int32_t>(i), scratch_of(static_cast<std::int32_t>(f)));
  }
  Offsets offsets = assign_offsets(bytes, together.of(bytes.size()), instances);
  bytes.resize(instances);
  offsets.of.resize(instances);
  return {std::move(bytes), std::move(offsets)};
}

Turns take_bucket_turns(std::span<const Bundle> reduced, std::vector<std::int64_t> bytes) {
  Together together(bytes);
  for (std::size_t b = 0; b < reduced.size(); ++b) {
    together.add(reduced[b], reduced[b]);
    if (b > 0) together.add(reduced[b - 1], reduced[b]);
  }
  return turns_of(std::move(bytes), std::move(together));
}

namespace {

// Each instance that is updated, as the calls come.
std::vector<std::int32_t> updated_in_order(const Plan& plan) {
  std::vector<std::int32_t> order;
  std::vector<bool> known(plan.instances.size());
  for (const Call& call : plan.calls) {
    const auto instance = static_cast<std::size_t>(call.instance);
    if (plan.functions[static_cast<std::size_t>(call.function)].kind != FunctionKind::update ||
        call.instance == 0 || known[instance])
      continue;
    known[instance] = true;
    order.push_back(call.instance);
  }
  return order;
}

// Whether an instance's update computes in three pieces or more.
bool is_updated_in_pieces(const Plan& plan, std::int32_t instance) {
  const PlannedFunction& update =
      plan.functions[static_cast<std::size_t>(plan.find(FunctionKind::update, instance))];
  return std::count_if(update.pieces.begin(), update.pieces.end(), [&](const Piece& piece) {
           return plan.queues[static_cast<std::size_t>(piece.queue)].workers;
         }) >= 3;
}

bool comes_from_drives(const Plan& plan, std::int32_t instance) {
  const PlannedFunction& update =
      plan.functions[static_cast<std::size_t>(plan.find(FunctionKind::update, instance))];
  const auto is_there = [&](const PlannedOperand& operand) {
    const auto range = static_cast<std::size_t>(operand.address.range);
    return operand.value != none && plan.layout.ranges[range].place.space == Space::disk;
  };
  return std::any_of(update.steps.begin(), update.steps.end(), [&](const PlannedStep& step) {
    return std::any_of(step.operands.begin(), step.operands.end(), is_there);
  });
}

}  // namespace

Turns take_update_turns(const Plan& plan, std::vector<std::int64_t> bytes, bool far_ahead) {
  const std::vector<std::int32_t> order = updated_in_order(plan);
  std::vector<bool> pieces;
  for (const std::int32_t i : order) pieces.push_back(is_updated_in_pieces(plan, i));
  std::int64_t window = 0;
  if (far_ahead && std::none_of(pieces.begin(), pieces.end(), std::identity()) &&
      std::any_of(order.begin(), order.end(), [&](std::int32_t i) { return comes_from_drives(plan, i); }))
    for (const std::int32_t i : order) window = std::max(window, bytes[static_cast<std::size_t>(i)]);
  std::vector<std::size_t> need_memory;  // places in that order
  for (std::size_t i = 0; i < order.size(); ++i)
    if (bytes[static_cast<std::size_t>(order[i])] > 0) need_memory.push_back(i);
  Together together(bytes);
  for (std::size_t p = 0; p < need_memory.size(); ++p) {
    const std::size_t i = need_memory[p];
    std::int64_t between = 0;
    for (std::size_t next = 1; next < need_memory.size(); ++next) {
      const std::size_t later = need_memory[(p + next) % need_memory.size()],
                        distance = (later + order.size() - i) % order.size();
      if ((later < i && window == 0) || (distance > 2 && between > window)) break;
      if (!pieces[i] || !pieces[later]) together.add(order[i], order[later]);
      between += bytes[static_cast<std::size_t>(order[later])];
    }
  }
  return turns_of(std::move(bytes), std::move(together));
}

}  // namespace prun
