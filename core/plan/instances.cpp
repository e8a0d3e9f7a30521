#include "plan/instances.hpp"

#include <algorithm>
#include <numeric>

#include "base/narrow.hpp"
#include "plan/carried_spans.hpp"

namespace prun {
namespace {

std::int32_t add_instance(const Instance& instance, Plan& plan, std::vector<std::int32_t>& first_instance) {
  const auto at = narrow<std::int32_t>(plan.instances.size());
  plan.instances.push_back(instance);
  std::int32_t& first = first_instance[instance.segment];
  if (!instance.is_stub() && first < 0) first = at;
  return at;
}

// Adds stubs for what another rank's segment carries to a chunk of this one, or over it.
void add_carried_stubs(const Program& program, const Work& work, Plan& plan) {
  for (const CarriedSpan& span : carried_spans(program)) {
    const Id segment = program.value(span.of.value).segment;
    const bool met = std::any_of(work.chunks.begin(), work.chunks.end(),
                                 [&](const ChunkWork& chunk) { return span.meets(chunk.first, chunk.last); });
    if (met && plan.carrier_of(segment) < 0)
      plan.instances.push_back({.segment = segment, .held = HeldPart::carried});
  }
}

std::vector<std::size_t> chunks_by_stage(const Work& work) {
  std::vector<std::size_t> order(work.chunks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return work.chunks[a].stage < work.chunks[b].stage; });
  return order;
}

}  // namespace

Numbered<Instance> chain_of(const Program& program) {
  Numbered<Instance> chain;
  const Delays& delays = program.delays();
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (std::int64_t layer = 0; layer < program.segment(segment).repeat; ++layer)
      chain.push_back({.segment = segment, .layer = layer, .delay = delays.at(chain.size())});
  return chain;
}

// Lists chunks by stage, so that one lies behind the one it goes on from.
std::vector<std::int32_t> make_instances(const Program& program, const Work& work, Plan& plan) {
  std::vector<std::int32_t> first_instance(program.segment_count(), -1);
  const auto add = [&](const Instance& instance) { return add_instance(instance, plan, first_instance); };
  add({.segment = program.step_segment()});
  plan.chunks.resize(work.chunks.size());
  const Numbered<Instance> chain = chain_of(program);
  const std::vector<std::size_t> order = chunks_by_stage(work);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const ChunkWork& of = work.chunks[order[i]];
    Chunk& chunk = plan.chunks[order[i]];
    chunk.stage = of.stage;
    if (of.from >= 0 && of.from == work.coordinate) chunk.follows = static_cast<std::int32_t>(order[i - 1]);
    if (of.from >= 0 && of.from != work.coordinate) {
      Instance stub = chain[of.first - 1];
      stub.held = HeldPart::boundary;
      chunk.stub = add(stub);
    }
    chunk.first = narrow<std::int32_t>(plan.instances.size());
    for (std::int32_t at = of.first; at < of.last; ++at) add(chain[at]);
    chunk.last = narrow<std::int32_t>(plan.instances.size());
  }
  add_carried_stubs(program, work, plan);
  return first_instance;
}

std::vector<std::int32_t> held_instances(const Plan& plan) {
  std::vector<std::int32_t> held;
  for (std::size_t i = 1; i < plan.instances.size(); ++i)
    if (!plan.instances[i].is_stub()) held.push_back(static_cast<std::int32_t>(i));
  return held;
}

}  // namespace prun
