#include "plan/work.hpp"

#include <algorithm>
#include <numeric>

#include "base/narrow.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- carried spans

bool uses(const Program& program, Id segment, const CarriedValue& carried) {
  for (const std::vector<Id>& function : program.segment(segment).functions)
    for (const Id op : function)
      for (const Id operand : program.op(op).operands)
        if (operand != none && (operand == carried.value || operand == carried.gradient)) return true;
  return false;
}

}  // namespace

std::vector<CarriedSpan> carried_spans(const Program& program) {
  std::vector<CarriedSpan> spans;
  if (program.carried().empty()) return spans;
  const Numbered<Instance> chain = chain_of(program);
  for (const CarriedValue& carried : program.carried()) {
    CarriedSpan span{carried};
    for (std::size_t i = 0; i < chain.size(); ++i) {
      const auto at = static_cast<std::int32_t>(i);
      if (chain[i].segment == program.value(carried.value).segment) span.from = span.last = at;
      if (uses(program, chain[i].segment, carried)) span.last = at;
    }
    spans.push_back(span);
  }
  return spans;
}

namespace {

// ------------------------------------------------------------------- instances

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

// ------------------------------------------------------------------- work

std::int32_t Period::steps() const {
  std::int32_t most = 0;
  for (const PeriodPass& pass : passes) most = std::max(most, pass.behind);
  return most + 1;
}

Work whole_work(const Program& program, std::int64_t microbatches) {
  Work work;
  work.chunks.push_back({0, 0, static_cast<std::int32_t>(chain_of(program).size()), -1, -1});
  for (std::int32_t microbatch = 0; microbatch < microbatches; ++microbatch)
    for (const Pass pass : {Pass::forward, Pass::backward}) work.calls.push_back({pass, 0, microbatch});
  return work;
}

namespace {

// Each instance is a stage: microbatches [first, first + count) pass it before the next one.
void add_passes(std::int32_t stages, std::int32_t first, std::int32_t count, Work& work) {
  const auto add = [&](Pass pass, std::int32_t stage) {
    for (std::int32_t i = 0; i < count; ++i) work.calls.push_back({pass, stage, first + i});
  };
  for (std::int32_t stage = 0; stage < stages; ++stage) add(Pass::forward, stage);
  for (std::int32_t stage = stages; stage-- > 0;) add(Pass::backward, stage);
}

Work work_by_instance(const Program& program, std::int64_t microbatches, std::int32_t at_once) {
  Work work;
  work.coordinate = 0;
  const auto stages = static_cast<std::int32_t>(chain_of(program).size());
  for (std::int32_t stage = 0; stage < stages; ++stage)
    work.chunks.push_back({stage, stage, stage + 1, stage > 0 ? 0 : -1, stage + 1 < stages ? 0 : -1});
  for (std::int32_t first = 0; first < microbatches; first += at_once)
    add_passes(stages, first, at_once, work);
  return work;
}

}  // namespace

Work vertical_work(const Program& program, std::int64_t microbatches) {
  return work_by_instance(program, microbatches, static_cast<std::int32_t>(microbatches));
}

Work interleaved_work(const Program& program, std::int64_t microbatches, std::int32_t interleave) {
  PRUN_CHECK(microbatches % interleave == 0, microbatches, " microbatches in ", interleave, " at a time");
  Work work = work_by_instance(program, microbatches, interleave);
  work.interleave = interleave;
  return work;
}

Work forward_work(Work work) {
  std::erase_if(work.calls, [](const ScheduleCall& call) { return call.pass != Pass::forward; });
  work.split = false;
  work.tied_to = -1;
  work.period = {};
  return work;
}

namespace {

// ------------------------------------------------------------------- nominal time

// Numbers of a GPU of 2023, with faster links within a host than it has. If an order assumes too little time
// for a collective, microbatches still stay half a layer apart, so that one computes while another
// communicates. If it assumes too much, they communicate at the same time.
constexpr double flops_a_second = 500e12, bytes_a_second = 3e12, seconds_of_a_kernel = 3e-6;
constexpr double exchanged_bytes_a_second = 600e9, seconds_of_an_exchange = 5e-6;

}  // namespace

double nominal_seconds(const Program& program, const PlannedStep& step) {
  if (step.exchange) {
    const std::int64_t bytes = std::max(step.exchange->in.bytes, step.exchange->out.bytes);
    return seconds_of_an_exchange + static_cast<double>(bytes) / exchanged_bytes_a_second;
  }
  if (step.op == none) return seconds_of_a_kernel;
  const Op& op = program.op(step.op);
  const OpCost cost = op.cost(program.local_shape(op));
  return seconds_of_a_kernel + std::max(cost.flops / flops_a_second, cost.bytes / bytes_a_second);
}

// ------------------------------------------------------------------- older parameters

bool reads_before(const Program& program, const PlannedFunction& function) {
  for (const PlannedStep& step : function.steps)
    for (const PlannedOperand& operand : step.operands)
      if (operand.value != none && program.value(operand.value).age > 0) return true;
  return false;
}

void read_with_age(const Program& program, const Plan& plan, std::int64_t updates,
                   PlannedFunction& function) {
  for (PlannedStep& step : function.steps)
    for (PlannedOperand& operand : step.operands) {
      if (operand.value == none || program.value(operand.value).age == 0) continue;
      const Id version = program.as_before(program.value(operand.value).before_of, updates);
      operand = {version, plan.allocation(version)};
    }
}

}  // namespace prun
