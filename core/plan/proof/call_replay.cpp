#include "plan/proof/call_replay.hpp"

#include <algorithm>

#include "base/narrow.hpp"
#include "plan/proof/check_failure.hpp"

namespace prun {
namespace {

// Returns the calls of each queue; the saver's queue comes behind those of the plan.
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

// Replays a transfer from another rank, or to it. That both mean the same is checked by plan/check_ranks.
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
      sums_(static_cast<std::size_t>(plan.sides), SumsOverRanks(program)) {}

ProofState CallReplay::state(std::int64_t step) {
  ProofState now = memory_.state();
  for (std::int64_t of = step; of < step + plan_.sides; ++of) sums_of(of).append_state(now);
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
      memory_.each_window(call, value.value, plan_.home(value.value), [&](const Window& window) {
        const Id id = window.content.value;
        memory_.read(window, versions().wanted(id, step, false, false, versions().delay_of(id)), "save");
      });
    }
  }
}

void CallReplay::replay(const Call& call, std::int64_t step, Round round) {
  if (call.save_read < 0) {
    clocks_.begin_call(call.queue, call.position, call.waits);
  } else {
    std::vector<Wait> waits = call.waits;
    waits.push_back({narrow<std::int32_t>(plan_.queues.size()), call.save_read, 0});
    clocks_.begin_call(call.queue, call.position, waits);
  }
  if (!call.runs_in(round)) return;
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

// Reads the first operand and writes the last, which are one if the exchange works in place; and likewise
// for what travels with it.
void CallReplay::replay_exchange(const Call& call, const PlannedStep& step) {
  const Op& op = program_.op(step.op);
  const FunctionKind kind = kind_of(call);
  const bool updates = kind == FunctionKind::update, carries = versions().carries_parameters(op);
  // This is the version of what it carries; if a rank's part is padding alone, nothing there states a
  // version.
  std::int64_t version = updates ? now() + 1 : now();
  for (std::size_t i = 0; i < step.operands.size(); ++i) {
    const PlannedOperand& operand = step.operands[i];
    const Access access = i < op.operands.size() ? op.access(i) : Access::update;
    memory_.each_window(call, operand.value, operand.address, [&](const Window& window) {
      const Id value = window.content.value;
      if (access != Access::write) {
        const std::int64_t found =
            memory_.read(window, versions().wanted(value, now(), updates, carries), op.kind());
        if (versions().counts_updates(value)) version = std::min(version, found);
      }
      if (access != Access::read) memory_.write(window, version, op.kind());
      sums().exchange(kind, access, window.content);
    });
  }
}

// Replays a kernel; bit i of `first` says that the step begins the sum in operand i.
void CallReplay::replay_kernel(const Call& call, const PlannedStep& step, std::uint32_t first) {
  const Op& op = program_.op(step.op);
  check_can_begin(op, step, first);
  const bool updates = kind_of(call) == FunctionKind::update;
  std::int64_t version = read_operands(call, step, first);
  // Memory that a step clears to make copies of parameters in becomes as old as they are.
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

// Returns the version of parameters that are copies of what the step read.
std::int64_t CallReplay::read_operands(const Call& call, const PlannedStep& step, std::uint32_t first) {
  const Op& op = program_.op(step.op);
  const FunctionKind kind = kind_of(call);
  const bool updates = kind == FunctionKind::update, carries = versions().carries_parameters(op);
  const std::int64_t delay = is_pass(kind) ? plan_.instances[call.instance].delay : 0;
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
