// Replays a plan's calls one by one over shadow memory: each step's operands must hold the value, microbatch
// and version that the program means. Example: a wait is missing between an all-gather and the forward that
// reads its result. The replay finds that the forward reads bytes whose writer is not known to be done, and
// names both calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "plan/plan.hpp"
#include "plan/proof/shadow_memory.hpp"

namespace prun {

// ------------------------------------------------------------------- check effects
// Checks that a plan calls every op of its program: a plan without an update would pass the replay of memory.

using CalledPieces = std::set<std::pair<std::int32_t, std::int32_t>>;  // function and piece

// Each piece of each function must be called, with the ops of the program.
void check_effects(const Program& program, const Plan& plan, const CalledPieces& called);

// ------------------------------------------------------------------- call replay

// ------------------------------------------------------------ view windows

// Divides a value's bytes by what they hold: members of a buffer, a rank's shard.

// Bytes with one content.
struct Window {
  Content content;
  std::int64_t at = 0, bytes = 0;
};

class ViewWindows {
 public:
  ViewWindows(const Program& program, const Plan& plan) : program_(program), plan_(plan) {
    for (Id id = 0; id < program.value_count(); ++id)
      if (const std::optional<ViewOf>& view = program.value(id).view; view && !view->is_part())
        members_[view->whole].push_back(id);
  }

  // Calls `body` for each window into the bytes of `content` at `at`.
  template <class Body>
  void each(const Content& content, const Address& address, std::int64_t at, Body&& body) const {
    const Value& value = program_.value(content.value);
    const bool range = value.role == Role::view && (!value.view || value.view->is_part());
    const auto members =
        range ? members_.find(value.view ? value.view->whole : content.value) : members_.end();
    if (members == members_.end()) {
      body(Window{content, at, address.bytes});
      return;
    }
    const std::int64_t part = plan_.part_of(address) * address.bytes;
    for (const Id member : members->second) {
      const std::int64_t first = program_.value(member).view->first * size_of(value.dtype) - part;
      const std::int64_t begin = std::max<std::int64_t>(first, 0),
                         end = std::min(first + program_.local_bytes(member), address.bytes);
      if (begin < end) body(Window{{member, content.instance, -1}, at + begin, end - begin});
    }
  }

 private:
  const Program& program_;
  const Plan& plan_;
  std::map<Id, std::vector<Id>> members_;  // by the range that contains them
};

// ------------------------------------------------------------ operand memory

// The replay of a step depends on this, relative to the step.
using ProofState = std::vector<std::int64_t>;

// Follows what operands find in memory, and leave there.
class OperandMemory {
 public:
  // Begins with memory before the first step. The accessing call is the current one of `clocks`.
  OperandMemory(const Program& program, const Plan& plan, const QueueClocks& clocks);

  const ContentVersions& versions() const { return versions_; }
  // Applies to the calls that follow.
  void begin_step(std::int64_t step) { step_ = step; }
  std::int64_t step() const { return step_; }
  // Forgets what the layout does not keep between steps: another program may have overwritten it.
  void forget_what_is_not_kept() { memory_.forget_what_is_not_kept(); }

  template <class Body>
  void each_window(const Call& call, Id value, const Address& address, Body&& body) const {
    const std::int64_t at = plan_.resolve(call, address, side_of(call));
    windows_.each(content_of(call, value, address), address, at, body);
  }

  // Returns the oldest version found.
  std::int64_t read(const Window& window, const Versions& versions, std::string_view op) {
    if (is_hosts(window.content.value)) return versions.newest;
    return memory_.read(window.at, window.bytes, window.content, versions, op);
  }
  void write(const Window& window, std::int64_t updates, std::string_view op) {
    memory_.write(window.at, window.bytes, versions_.written(window.content, step_, updates), op);
  }
  // A sum must not contain anything when it begins.
  void check_begins(const Window& window, std::string_view op);
  // Replays a transfer to another rank, and from it.
  void send(const Call& call, const PlannedOperand& operand);
  void receive(const Call& call, const PlannedOperand& operand);
  // These bytes must not be read any more.
  void spoil(const Call& call, const Address& address, const Content& by, std::string_view op);

  // Leaves out staging, whose buffers alternate.
  ProofState state() const;

 private:
  Content content_of(const Call& call, Id id, const Address& address) const {
    const Value& value = program_.value(id);
    std::int32_t instance = call.instance;
    if (address.whose == Whose::fixed) instance = address.instance;
    if (address.whose == Whose::previous) {
      instance = call.instance - 1;
      const SegmentData& before = program_.segment(plan_.instances[instance].segment);
      id = address.region == Region::boundary ? before.outgoing : before.outgoing_gradient;
    }
    const bool of_microbatch = value.role == Role::activation || value.role == Role::input;
    return {id, instance, of_microbatch ? call.microbatch : -1};
  }
  // Returns the side of the step that the iteration is of.
  int side_of(const Call& call) const { return plan_.side_of(step_ + call.behind); }
  Content passed_on(const Call& call, const PlannedOperand& operand) const;
  bool is_hosts(Id value) const { return program_.value(value).role == Role::staging; }

  const Program& program_;
  const Plan& plan_;
  const QueueClocks& clocks_;
  const ContentVersions versions_;
  const ViewWindows windows_;
  ShadowMemory memory_;
  std::int64_t step_ = 0;
};

// ------------------------------------------------------------ sums over ranks

// Checks that each partial gradient is summed over ranks exactly once, when it is complete.
class SumsOverRanks {
 public:
  explicit SumsOverRanks(const Program& program) : program_(program) {}

  // An op of a function of that kind accesses what operand `i` shows; `first`: it begins the sum there.
  void touch(FunctionKind kind, const Op& op, std::size_t i, bool first, const Content& content);
  // Ranks communicate the content.
  void exchange(FunctionKind kind, Access access, const Content& content);
  // Checks that an instance's sums (or all) are complete: before its norm is measured, and before norms are
  // used.
  void check_complete(std::optional<std::int32_t> instance) const;

  // Appends what the next step depends on.
  void append_state(std::vector<std::int64_t>& state) const;

 private:
  using Sum = std::pair<Id, std::int32_t>;  // gradient, instance

  bool is_sent(const Op& op) const;
  bool keeps_apart(const Op& op, Id gradient) const;
  void begin(const Op& op, bool first, const Content& content);
  void check_use(FunctionKind kind, const Op& op, Access access, const Content& content) const;
  void follow_parts(FunctionKind kind, Access access, const Content& content);

  const Program& program_;
  std::set<Sum> summed_;
  std::set<Sum> unsummed_;  // of sharded gradients
};

class CallReplay {
 public:
  CallReplay(const Program& program, const Plan& plan);

  // With overlapping steps, `iteration` iterations came before.
  void begin_iteration(std::int64_t iteration) { clocks_.begin_step(iteration); }
  // Takes a call of the iteration's newest step, or of an earlier one.
  void replay(const Call& call, std::int64_t step, Iteration iteration);
  // A save begins after all earlier steps, reads what they left, and runs during the step.
  void replay_save(std::int64_t step);
  void end_iteration(std::int64_t step) { memory_.begin_step(step); }

  void forget_what_is_not_kept() { memory_.forget_what_is_not_kept(); }
  // Returns the state of memory and sums after the step.
  ProofState state(std::int64_t step);
  const CalledPieces& called() const { return called_; }

 private:
  // Returns the step of the current call.
  std::int64_t now() const { return memory_.step(); }
  SumsOverRanks& sums_of(std::int64_t step) { return sums_[plan_.side_of(step)]; }
  SumsOverRanks& sums() { return sums_of(now()); }
  const ContentVersions& versions() const { return memory_.versions(); }
  FunctionKind kind_of(const Call& call) const { return plan_.functions[call.function].kind; }

  void replay_exchange(const Call& call, const PlannedStep& step);
  void replay_kernel(const Call& call, const PlannedStep& step, std::uint32_t first);
  std::int64_t read_operands(const Call& call, const PlannedStep& step, std::uint32_t first);
  std::int64_t delay_of(const Call& call) const;

  const Program& program_;
  const Plan& plan_;
  QueueClocks clocks_;
  OperandMemory memory_;
  Numbered<SumsOverRanks> sums_;  // by step modulo `staging_copies`
  CalledPieces called_;
};

}  // namespace prun
