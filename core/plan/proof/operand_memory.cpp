#include "plan/proof/operand_memory.hpp"

#include <algorithm>
#include <limits>

#include "plan/proof/initial_content.hpp"

namespace prun {
namespace {

void append_when(const When& when, const QueueClocks& clocks, ProofState& state) {
  state.insert(state.end(), {when.queue, when.ticket < 0 ? std::numeric_limits<std::int64_t>::min()
                                                         : when.ticket - clocks.first_ticket(when.queue)});
}

// Appends what a stretch of memory means for the step after this one, relative to it.
void append_stretch(std::int64_t at, const ShadowMemory::Stretch& stretch, const QueueClocks& clocks,
                    std::int64_t version, ProofState& state) {
  const Content& content = stretch.content;
  state.insert(state.end(), {at, stretch.end, content.value, content.instance, content.microbatch, version});
  append_when(stretch.written, clocks, state);
  std::vector<When> reads = stretch.reads;
  std::sort(reads.begin(), reads.end(), [](const When& a, const When& b) { return a.queue < b.queue; });
  state.push_back(static_cast<std::int64_t>(reads.size()));
  for (const When& read : reads) append_when(read, clocks, state);
}

}  // namespace

OperandMemory::OperandMemory(const Program& program, const Plan& plan, const QueueClocks& clocks)
    : program_(program),
      plan_(plan),
      clocks_(clocks),
      versions_(program),
      windows_(program, plan),
      memory_(plan.layout, clocks,
              [&program](const Content& content) { return describe(program, content); }) {
  put_initial_content(program, plan, versions_, memory_);
}

void OperandMemory::check_begins(const Window& window, std::string_view op) {
  Content sum = window.content;
  sum.version = step_;
  memory_.check_begins(window.at, window.bytes, sum, op);
}

Content OperandMemory::passed_on(const Call& call, const PlannedOperand& operand) const {
  return versions_.written(content_of(call, operand.value, operand.address), step_, step_);
}

void OperandMemory::send(const Call& call, const PlannedOperand& operand) {
  const Content content = passed_on(call, operand);
  read({content, plan_.resolve(call, operand.address, side_of(call)), operand.address.bytes},
       {step_, step_, versions_.of(content.value)}, "send");
}

void OperandMemory::receive(const Call& call, const PlannedOperand& operand) {
  memory_.write(plan_.resolve(call, operand.address, side_of(call)), operand.address.bytes,
                passed_on(call, operand), "recv");
}

void OperandMemory::spoil(const Call& call, const Address& address, const Content& by, std::string_view op) {
  memory_.write(plan_.resolve(call, address, side_of(call)), address.bytes, by, op);
}

ProofState OperandMemory::state() const {
  ProofState state;
  for (const auto& [at, stretch] : memory_.stretches()) {
    const Content& content = stretch.content;
    if (content.value != none && is_hosts(content.value)) continue;
    const bool counts = content.value != none && versions_.of(content.value) != Counts::nothing;
    append_stretch(at, stretch, clocks_, counts ? content.version - step_ : 0, state);
  }
  return state;
}

}  // namespace prun
