#include "plan/proof/call_replay.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/narrow.hpp"
#include "plan/plan.hpp"
#include "plan/proof/check_failure.hpp"
#include "plan/proof/shadow_memory.hpp"
#include "program/text_steps.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- check effects

bool may_speculate(const Program& program, Id segment) {
  return segment != program.step_segment() && !program.segment(segment).ops(FunctionKind::speculate).empty();
}

// An instance that may be updated speculatively has either `update`, or both `speculate` and `settle`.
void check_updated_once(const Program& program, const Plan& plan) {
  std::set<std::pair<std::int32_t, FunctionKind>> called;
  for (const Call& call : plan.calls) {
    const PlannedFunction& function = plan.functions[call.function];
    called.emplace(call.instance, function.kind);
    for (const InstancePiece& of : function.joins) called.emplace(of.instance, function.kind);
  }
  for (std::int32_t i = 0; std::cmp_less(i, plan.instances.size()); ++i) {
    const Instance& instance = plan.instances[i];
    if (instance.is_stub() || !may_speculate(program, instance.segment)) continue;
    const auto has = [&](FunctionKind kind) { return called.contains({i, kind}); };
    if (has(FunctionKind::update) == has(FunctionKind::speculate) ||
        has(FunctionKind::speculate) != has(FunctionKind::settle))
      fail_check("layer ", instance.layer, " of segment '", program.segment(instance.segment).name,
                 "' is not updated once, by `update` or by `speculate` and `settle`");
  }
}

void check_called(const Program& program, const PlannedFunction& function, std::int32_t number,
                  const CalledPieces& called) {
  if (is_optimizer(function.kind) && may_speculate(program, function.segment) &&
      !called.contains({number, 0}))
    return;
  std::int32_t covered = 0;
  for (std::size_t piece = 0; piece < function.pieces.size(); ++piece) {
    if (!called.contains({number, static_cast<std::int32_t>(piece)}))
      fail_check("function ", name_of(function.kind), " of segment '", program.segment(function.segment).name,
                 "' is never called");
    if (function.pieces[piece].first == covered) covered = function.pieces[piece].last;
  }
  if (std::cmp_not_equal(covered, function.steps.size()))
    fail_check("function ", name_of(function.kind), " has steps that no call runs");
}

// A joint function must have the ops of all functions that it joins.
void check_joined(const Plan& plan, const PlannedFunction& joint) {
  std::size_t at = 0;
  for (const InstancePiece& of : joint.joins) {
    const PlannedFunction& function = plan.functions[of.function];
    const Piece& piece = function.pieces[of.piece];
    for (std::int32_t s = piece.first; s < piece.last; ++s, ++at)
      if (at == joint.steps.size() || joint.steps[at].op != function.steps[s].op)
        fail_check("function ", name_of(joint.kind), " has lost ops of those that it joins");
  }
}

// Returns true if the op may be omitted: a sum that a write begins need not be cleared.
bool may_be_left_out(const Op& op) {
  return op.def->clears && (op.function == FunctionKind::zero || op.function == FunctionKind::clear);
}

void check_ops(const Program& program, const PlannedFunction& function) {
  std::set<Id> kept;
  for (const PlannedStep& step : function.steps) {
    if (step.op != none) kept.insert(step.op);
    kept.insert(step.also.begin(), step.also.end());
  }
  for (Id op : program.segment(function.segment).ops(function.kind))
    if (!kept.contains(op) && !may_be_left_out(program.op(op)) &&
        (function.delay < 0 || program.is_updated_with(op, function.delay)))
      fail_check("function ", name_of(function.kind), " has lost ops");
}

}  // namespace

void check_effects(const Program& program, const Plan& plan, const CalledPieces& called) {
  for (std::size_t f = 0; f < plan.functions.size(); ++f) {
    const PlannedFunction& function = plan.functions[f];
    check_called(program, function, static_cast<std::int32_t>(f), called);
    if (function.joins.empty())
      check_ops(program, function);
    else
      check_joined(plan, function);
  }
  check_updated_once(program, plan);
}

namespace {

// ------------------------------------------------------------------- call replay

// ------------------------------------------------------------ initial content

// Memory before the first step.

void put_content(const Plan& plan, Id value, const Address& allocation, std::int32_t instance,
                 ShadowMemory& memory, std::int64_t version = 0) {
  memory.put(plan.resolve(instance, allocation), allocation.bytes, {value, instance, -1, version});
}

// Marks padding of gradients for all overlapping steps.
void put_padding_at(const Plan& plan, Id value, std::int32_t instance, ShadowMemory& memory) {
  Call call;
  call.instance = instance;
  const Address& allocation = plan.allocation(value);
  for (int side = 0; side < plan.gradient_copies; ++side)
    memory.put(plan.resolve(call, allocation, side), allocation.bytes, {value, instance, -1});
}

// Marks padding between gradients, and after the last, that no step clears.
void put_padding(const Program& program, const Plan& plan, std::int32_t instance, ShadowMemory& memory) {
  for (const Id id : program.segment(plan.instances[instance].segment).values) {
    const Value& value = program.value(id);
    if (value.role == Role::view && value.view && !value.view->is_part() &&
        program.value(value.view->whole).lifetime == ValueLifetime::step)
      put_padding_at(plan, id, instance, memory);
  }
}

void put_lasting(const Program& program, const Plan& plan, const ContentVersions& versions,
                 const std::set<Id>& left, std::int32_t instance, ShadowMemory& memory) {
  for (Id id : program.segment(plan.instances[instance].segment).values) {
    const auto allocation = plan.allocations.find(id);
    if (allocation == plan.allocations.end() || program.value(id).role == Role::view) continue;
    if (program.value(id).role == Role::fetched) continue;                 // each step makes it anew
    if (left.contains(id)) continue;                                       // each text makes it anew
    if (program.value(id).age > plan.instances[instance].delay) continue;  // no instance keeps it
    const Region region = allocation->second.region;
    if (versions.of(id) != Counts::steps && (region == Region::parameter || region == Region::state))
      put_content(plan, id, allocation->second, instance, memory, -versions.delay_of(id));
  }
}

bool uses(const Plan& plan, Id value) {
  return std::any_of(plan.functions.begin(), plan.functions.end(), [&](const PlannedFunction& function) {
    return std::any_of(function.steps.begin(), function.steps.end(), [&](const PlannedStep& step) {
      return std::any_of(step.operands.begin(), step.operands.end(),
                         [&](const PlannedOperand& operand) { return operand.value == value; });
    });
  });
}

// Parameters and optimizer state exist before step one; unwritten memory is zero, as padding must be; the
// host writes both staging buffers.
void put_initial_content(const Program& program, const Plan& plan, const ContentVersions& versions,
                         ShadowMemory& memory) {
  const std::set<Id> left = left_by_first_step(program);
  for (std::size_t i = 0; i < plan.instances.size(); ++i) {
    if (plan.instances[i].is_stub()) continue;
    put_padding(program, plan, static_cast<std::int32_t>(i), memory);
    put_lasting(program, plan, versions, left, static_cast<std::int32_t>(i), memory);
  }
  // Values handed over from step to step may have any content in the first.
  for (Id id : program.segment(program.step_segment()).values)
    if (program.value(id).carried && uses(plan, id))
      memory.put(plan.resolve(Call{}, plan.allocation(id), 0), plan.allocation(id).bytes, {id, 0, -1, -1});
}

// Takes uses before those `steps` for equally old: who knew of one to be done knows it a step later too. Such
// uses are those that a text has in its first step alone.
void append_when(const When& when, const QueueClocks& clocks, std::int64_t steps, ProofState& state) {
  state.insert(state.end(), {when.queue, when.ticket < 0 ? std::numeric_limits<std::int64_t>::min()
                                                         : clocks.relative(when, steps)});
}

// Appends what a stretch of memory means to the next step, relative to it.
void append_stretch(std::int64_t at, const ShadowMemory::Stretch& stretch, const QueueClocks& clocks,
                    std::int64_t steps, std::int64_t version, ProofState& state) {
  const Content& content = stretch.content;
  state.insert(state.end(), {at, stretch.end, content.value, content.instance, content.microbatch, version});
  append_when(stretch.written, clocks, steps, state);
  std::vector<When> reads = stretch.reads;
  std::sort(reads.begin(), reads.end(), [](const When& a, const When& b) { return a.queue < b.queue; });
  state.push_back(static_cast<std::int64_t>(reads.size()));
  for (const When& read : reads) append_when(read, clocks, steps, state);
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
    append_stretch(at, stretch, clocks_, plan_.staging_copies + 1, counts ? content.version - step_ : 0,
                   state);
  }
  return state;
}

void SumsOverRanks::touch(FunctionKind kind, const Op& op, std::size_t i, bool first,
                          const Content& content) {
  if (program_.value(content.value).role != Role::gradient) return;
  if (op.def->clears || first) begin(op, first, content);
  if (op.def->clears) return;
  follow_parts(kind, op.access(i), content);
  if (kind == FunctionKind::reduce && op.access(i) == Access::write)  // the sum, cast back to its own type
    summed_.insert({content.value, content.instance});
  else
    check_use(kind, op, op.access(i), content);
}

void SumsOverRanks::begin(const Op& op, bool first, const Content& content) {
  if (unsummed_.count({content.value, content.instance}) != 0)
    fail_check("op '", op.kind(), "' ", first ? "begins " : "clears ", describe(program_, content),
               " again before it is summed over the ranks");
  summed_.erase({content.value, content.instance});
}

// Returns true if ranks communicate the op's result.
bool SumsOverRanks::is_sent(const Op& op) const {
  const std::vector<Id>& ops = program_.segment(op.segment).ops(op.function);
  return std::any_of(ops.begin(), ops.end(), [&](Id id) {
    return program_.op(id).exchange() && program_.op(id).operands.front() == op.operands.back();
  });
}

// Returns true if all results are partial or vary: then the op may read partial sums.
bool SumsOverRanks::keeps_apart(const Op& op, Id gradient) const {
  const std::vector<AxisPlacement>& placement = program_.value(gradient).placement;
  for (AxisId axis = 0; axis < placement.size(); ++axis)
    for (std::size_t i = 0; placement[axis].is_partial() && i < op.operands.size(); ++i) {
      if (op.operands[i] == none || op.access(i) == Access::read) continue;
      const AxisPlacement lies = program_.value(op.operands[i]).on(axis);
      if (!lies.is_partial() && !lies.is_varying()) return false;
    }
  return true;
}

// A partial gradient must be summed exactly once, after its last contribution.
void SumsOverRanks::check_use(FunctionKind kind, const Op& op, Access access, const Content& content) const {
  const bool summed = summed_.count({content.value, content.instance}) != 0;
  if (access == Access::update && summed)
    fail_check("op '", op.kind(), "' adds to ", describe(program_, content),
               " after it was summed over the ranks");
  const std::vector<AxisPlacement>& placement = program_.value(content.value).placement;
  const bool partial =
      std::any_of(placement.begin(), placement.end(), [](const AxisPlacement& p) { return p.is_partial(); });
  const bool leaves =
      kind == FunctionKind::reduce && !op.def->converts && !is_sent(op) && !keeps_apart(op, content.value);
  if (partial && !summed && (leaves || kind == FunctionKind::norm || is_update(kind)))
    fail_check("op '", op.kind(), "' reads ", describe(program_, content),
               " before it is summed over the ranks");
}

void SumsOverRanks::exchange(FunctionKind kind, Access access, const Content& content) {
  if (program_.value(content.value).role != Role::gradient) return;
  // Tied copies are added before they are summed over ranks.
  if (kind != FunctionKind::tie) summed_.insert({content.value, content.instance});
  follow_parts(kind, access, content);
}

// Sharded gradients: all contributions must be reduced before the buffer is cleared, and before the step
// needs the sum.
void SumsOverRanks::follow_parts(FunctionKind kind, Access access, const Content& content) {
  const std::optional<ViewOf>& view = program_.value(content.value).view;
  if (!view || program_.value(view->whole).lifetime != ValueLifetime::unreduced) return;
  if (kind == FunctionKind::reduce && access == Access::read)
    unsummed_.erase({content.value, content.instance});
  else if (kind != FunctionKind::reduce && kind != FunctionKind::tie && access == Access::update)
    unsummed_.insert({content.value, content.instance});
}

void SumsOverRanks::check_complete(std::optional<std::int32_t> of) const {
  for (const auto& [value, instance] : unsummed_)
    if (!of || *of == instance)
      fail_check(describe(program_, {value, instance, -1}),
                 " is not summed over the ranks when its norm is taken");
}

void SumsOverRanks::append_state(std::vector<std::int64_t>& state) const {
  for (const auto* sums : {&summed_, &unsummed_})
    for (const auto& [value, instance] : *sums) state.insert(state.end(), {value, instance});
}

namespace {

// Counts them by queue; the saver's comes last.
std::vector<std::int64_t> calls_by_queue(const Plan& plan) {
  std::vector<std::int64_t> calls;
  for (const QueueInfo& queue : plan.queues) calls.push_back(queue.calls);
  calls.push_back(static_cast<std::int64_t>(plan.save_reads.size()));
  return calls;
}

void check_can_begin(const Op& op, const PlannedStep& step, std::uint32_t first) {
  for (std::size_t i = 0; first != 0 && i < op.operands.size(); ++i)
    if ((first >> i & 1) != 0 && ((step.writes_first >> i & 1) == 0 || op.access(i) != Access::update))
      fail_check("op '", op.kind(), "' is to begin the sum in its operand '", op.def->operands[i].name,
                 "', which its kernel cannot");
}

bool is_pass(FunctionKind kind) {
  return kind == FunctionKind::forward || kind == FunctionKind::backward ||
         kind == FunctionKind::backward_weight;
}

// Returns true if ops of that kind read what the update has written.
bool behind_update(FunctionKind kind) { return kind == FunctionKind::periodic; }

// That both ends mean the same is checked by check_ranks().
void replay_transfer(OperandMemory& memory, const Call& call, const PlannedStep& step) {
  const PlannedOperand& operand = step.operands.front();
  if (step.exchange->kind == CommKind::send)
    memory.send(call, operand);
  else
    memory.receive(call, operand);
}

}  // namespace

CallReplay::CallReplay(const Program& program, const Plan& plan)
    : program_(program),
      plan_(plan),
      clocks_(calls_by_queue(plan)),
      memory_(program, plan, clocks_),
      sums_(static_cast<std::size_t>(plan.staging_copies), SumsOverRanks(program)) {}

ProofState CallReplay::state(std::int64_t step) {
  ProofState now = memory_.state();
  for (std::int64_t of = step; of < step + plan_.staging_copies; ++of) sums_of(of).append_state(now);
  return now;
}

void CallReplay::replay_save(std::int64_t step) {
  clocks_.begin_step(step);
  memory_.begin_step(step);
  const auto saver = narrow<std::int32_t>(plan_.queues.size());
  std::vector<Wait> all;
  for (std::int32_t q = 0; q < saver; ++q)
    if (const std::int32_t calls = plan_.queues[q].calls; calls > 0) all.push_back({q, calls - 1, 1});
  for (std::size_t read = 0; read < plan_.save_reads.size(); ++read) {
    clocks_.begin_call(saver, static_cast<std::int32_t>(read), all);
    for (const PersistentValue& value : plan_.save_reads[read]) {
      Call call;
      call.instance = value.instance;
      memory_.each_window(call, value.value, plan_.allocation(value.value), [&](const Window& window) {
        const Id id = window.content.value;
        memory_.read(window, versions().wanted(id, step, false, false, versions().delay_of(id)), "save");
      });
    }
  }
}

void CallReplay::replay(const Call& call, std::int64_t step, Iteration iteration) {
  if (call.save_read < 0) {
    clocks_.begin_call(call.queue, call.position, call.waits);
  } else {
    std::vector<Wait> waits = call.waits;
    waits.push_back({narrow<std::int32_t>(plan_.queues.size()), call.save_read, 0});
    clocks_.begin_call(call.queue, call.position, waits);
  }
  if (!call.runs_in(iteration)) return;
  memory_.begin_step(step - call.behind);
  if (kind_of(call) == FunctionKind::norm) sums().check_complete(call.instance);
  if (kind_of(call) == FunctionKind::finish) sums().check_complete({});
  const std::span<const PlannedStep> steps = plan_.steps(call);
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const PlannedStep& planned = steps[s];
    if (planned.op == none)
      replay_transfer(memory_, call, planned);
    else if (planned.exchange)
      replay_exchange(call, planned);
    else
      replay_kernel(call, planned, call.first_of(s));
    for (const Address& dead : planned.dead_after) memory_.spoil(call, dead, {none, -3, -3}, "release");
  }
  called_.insert({call.function, call.piece});
  for (const InstancePiece& of : plan_.functions[call.function].joins)
    called_.insert({of.function, of.piece});
}

// Reads the first operand and writes the last (the same if in place), and those merged with it.
void CallReplay::replay_exchange(const Call& call, const PlannedStep& step) {
  const Op& op = program_.op(step.op);
  const FunctionKind kind = kind_of(call);
  const bool updates = is_optimizer(kind), carries = versions().carries_parameters(op);
  // This is the version that it carries; a shard of padding alone has none.
  std::int64_t version = is_update(kind) ? now() + 1 : now();
  for (std::size_t i = 0; i < step.operands.size(); ++i) {
    const PlannedOperand& operand = step.operands[i];
    const Access access = i < op.operands.size() ? op.access(i) : Access::update;
    memory_.each_window(call, operand.value, operand.address, [&](const Window& window) {
      const Id value = window.content.value;
      if (access != Access::write) {
        const std::int64_t found = memory_.read(
            window, versions().wanted(value, now(), updates, carries, behind_update(kind) ? -1 : 0),
            op.kind());
        if (versions().counts_updates(value)) version = std::min(version, found);
      }
      if (access != Access::read) memory_.write(window, version, op.kind());
      sums().exchange(kind, access, window.content);
    });
  }
}

// Bit i of `first`: this step begins the sum in operand i.
void CallReplay::replay_kernel(const Call& call, const PlannedStep& step, std::uint32_t first) {
  const Op& op = program_.op(step.op);
  check_can_begin(op, step, first);
  const bool updates = is_update(kind_of(call));
  std::int64_t version = read_operands(call, step, first);
  // Memory cleared for copies of parameters becomes as old as they are.
  if (op.def->clears && !updates) version = now();
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == none || op.access(i) == Access::read) continue;
    const bool changes = updates && op.access(i) == Access::update;
    memory_.each_window(call, step.operands[i].value, step.operands[i].address, [&](const Window& window) {
      memory_.write(window, changes ? now() + 1 : version, op.kind());
    });
  }
  if (step.workspace.bytes > 0) memory_.spoil(call, step.workspace, {none, -2, -2}, "workspace");
}

// Returns how many updates old the version is that the call reads; ops of `periodic` run after the update.
std::int64_t CallReplay::delay_of(const Call& call) const {
  const FunctionKind kind = kind_of(call);
  return is_pass(kind) ? plan_.instances[call.instance].delay : behind_update(kind) ? -1 : 0;
}

// Returns the version of copied parameters that the step read.
std::int64_t CallReplay::read_operands(const Call& call, const PlannedStep& step, std::uint32_t first) {
  const Op& op = program_.op(step.op);
  const FunctionKind kind = kind_of(call);
  const bool updates = is_optimizer(kind), carries = versions().carries_parameters(op);
  const std::int64_t delay = delay_of(call);
  std::int64_t version = now() + 1;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == none) continue;
    const bool begins = (first >> i & 1) != 0, reads = op.access(i) == Access::read;
    memory_.each_window(call, step.operands[i].value, step.operands[i].address, [&](const Window& window) {
      sums().touch(kind, op, i, begins, window.content);
      if (begins) memory_.check_begins(window, op.kind());
      if (begins || op.access(i) == Access::write) return;
      const Id value = window.content.value;
      const std::int64_t found =
          memory_.read(window, versions().wanted(value, now(), updates, carries && reads, delay), op.kind());
      if (reads && versions().counts_updates(value)) version = std::min(version, found);
    });
  }
  return version;
}

}  // namespace prun
