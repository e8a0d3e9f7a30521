// Tracks what the operands of a plan's steps find in memory and leave there, by windows of one content each,
// while steps are replayed.
#pragma once

#include "plan/proof/content_versions.hpp"
#include "plan/proof/shadow_memory.hpp"
#include "plan/proof/view_windows.hpp"

namespace prun {

// Holds all that a step's replay depends on, relative to the step.
using ProofState = std::vector<std::int64_t>;

class OperandMemory {
 public:
  // Begins with what is there before the first step. The reader or writer is the call at hand of `clocks`.
  OperandMemory(const Program& program, const Plan& plan, const QueueClocks& clocks);

  const ContentVersions& versions() const { return versions_; }
  // Sets the step that the next calls are of.
  void begin_step(std::int64_t step) { step_ = step; }
  std::int64_t step() const { return step_; }
  // Forgets what the layout does not keep from step to step: others may have overwritten it.
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
  // Checks that an op that begins a sum finds none there.
  void check_begins(const Window& window, std::string_view op);
  // Replays a transfer to another rank, and from it.
  void send(const Call& call, const PlannedOperand& operand);
  void receive(const Call& call, const PlannedOperand& operand);
  // Says that these bytes must not be read from here on.
  void spoil(const Call& call, const Address& address, const Content& by, std::string_view op);

  // Returns the state of memory without staging, whose sides take turns.
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
  // Returns the side of the step that the round is of.
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

}  // namespace prun
