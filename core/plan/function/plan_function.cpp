#include "plan/function/plan_function.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

#include "base/narrow.hpp"
#include "ops/registry.hpp"
#include "plan/function/reach.hpp"
#include "plan/offsets.hpp"
#include "plan/plan.hpp"
#include "plan/plan_devices.hpp"
#include "plan/work.hpp"
#include "program/passes.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------ order

// Returns true if the op reads other ranks' parts of a sequence (OpDef::across).
bool looks_across(const Program& program, Id op) {
  return program.registry().looks_across(program.op(op).kind());
}

// Returns true if both ops touch a value that one of them changes.
bool depends(const Op& later, const Op& earlier) {
  for (std::size_t i = 0; i < later.operands.size(); ++i)
    for (std::size_t j = 0; j < earlier.operands.size(); ++j)
      if (later.operands[i] != none && later.operands[i] == earlier.operands[j] &&
          (later.access(i) != Access::read || earlier.access(j) != Access::read))
        return true;
  return false;
}

// Moves a collective of the next piece before the op that reads the current one, so that it runs
// concurrently.
std::vector<Id> with_pieces_ahead(const Program& program, const std::vector<Id>& ops) {
  std::vector<Id> ordered;
  for (const Id id : ops) {
    ordered.push_back(id);
    const Op& op = program.op(id);
    if (!op.exchange()) continue;
    const auto own = ordered.end() - 1;
    const auto looks = std::find_if(std::make_reverse_iterator(own), ordered.rend(),
                                    [&](Id before) { return looks_across(program, before); });
    if (looks == ordered.rend()) continue;
    const auto ahead = looks.base() - 1;
    if (std::none_of(ahead, own, [&](Id before) { return depends(op, program.op(before)); }))
      std::rotate(ahead, own, ordered.end());
  }
  return ordered;
}

// Returns the program's order, with two exceptions. The functions that begin and end a step run all possible
// computation before their collectives. Collectives of pieces (context parallelism with `pieces`) move before
// the attention of the piece before.
std::vector<Id> ordered_ops(const Program& program, Id segment, FunctionKind kind) {
  std::vector<Id> left = program.segment(segment).ops(kind), ordered;
  if (segment != program.step_segment()) return with_pieces_ahead(program, left);
  for (bool exchanges = false; !left.empty(); exchanges = !exchanges)
    for (std::size_t i = 0; i < left.size();) {
      const Op& op = program.op(left[i]);
      const bool waits = std::any_of(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(i),
                                     [&](Id before) { return depends(op, program.op(before)); });
      if (waits || (op.exchange() != nullptr) != exchanges) {
        ++i;
        continue;
      }
      ordered.push_back(left[i]);
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
    }
  return ordered;
}

// ------------------------------------------------------------ exchange steps

// Steps of a function that communicate.

std::int64_t ranks_of(const Program& program, const Op& op, Id id) {
  const double axis = program.attr(id, "axis");
  if (axis < 0 || !program.mesh().has(static_cast<AxisId>(axis)))
    refuse_op(program, op, "the mesh has no axis ", axis, " to exchange over");
  const std::int64_t ranks = program.mesh().extent(static_cast<AxisId>(axis));
  if (ranks == 1) refuse_op(program, op, "axis ", axis, " of the mesh has one rank; leave the exchange out");
  return ranks;
}

// Checks that operands have the sizes that the kind of collective implies.
void check_sizes(const Program& program, const Op& op, std::int64_t ranks, const OperandShape& in,
                 const OperandShape& out) {
  const CommKind kind = op.exchange()->kind;
  const std::int64_t given = in.elements() * (kind == CommKind::all_gather ? ranks : 1);
  const std::int64_t wanted = out.elements() * (kind == CommKind::reduce_scatter ? ranks : 1);
  if (in.dtype != out.dtype || given != wanted)
    refuse_op(program, op, name_of(kind), " over ", ranks, " ranks does not make ", out.elements(),
              " elements in ", name_of(out.dtype), " of ", in.elements(), " in ", name_of(in.dtype),
              "; exchange a value that lies as it needs");
}

// Returns the number of separate operations. A collective along a dimension on unpermuted values has one for
// each index before that dimension; an all-to-all sends one piece to each rank; a shift sends each of a
// rank's parts separately.
std::int64_t pieces_of(const Program& program, const Op& op, Id id, const OperandShape& in) {
  std::int64_t pieces = 1;
  const bool shifts = op.exchange()->kind == CommKind::send,
             direct = op.has_attr("direct") && program.attr(id, "direct") != 0;
  if (shifts || (direct && op.exchange()->kind != CommKind::all_to_all))
    for (auto dim = static_cast<std::int64_t>(program.attr(id, "dim")); dim-- > 0;)
      pieces *= in.dims[dim].extent;
  return shifts ? pieces * (program.attr(id, "chunks") > 0 ? 2 : 1) : pieces;
}

bool sums_in_place(const Program& program, const PlannedStep& step) {
  return program.op(step.op).exchanges_in_place() && step.exchange->reduction == Reduction::sum;
}

bool holds_sums(Region region) {
  return region == Region::gradient || region == Region::unreduced || region == Region::bucket;
}

// Returns true if step b is the same collective on the bytes right after those of step a.
bool follows(const Program& program, const PlannedStep& a, const PlannedStep& b, std::int64_t fence) {
  if (!a.exchange || !b.exchange || program.axis_of(a.op) != program.axis_of(b.op)) return false;
  if (!sums_in_place(program, a) || !sums_in_place(program, b)) return false;
  // Tied parameters must be summed in the same order on both stages, which depends on the position within a
  // collective.
  if (is_tied(program, a.operands.back().value) || is_tied(program, b.operands.front().value)) return false;
  const Address &x = a.exchange->in, &y = b.exchange->in;
  return a.exchange->dtype == b.exchange->dtype && x.region == y.region && holds_sums(x.region) &&
         x.whose == y.whose && x.instance == y.instance && x.range == y.range &&
         align(x.offset + x.bytes) + 2 * fence == y.offset;
}

// Describes an op's collective for a comm plugin, without addresses; nothing for other ops. Throws an Error
// if ranks or sizes do not fit.
std::optional<PlannedExchange> exchange_of(const Program& program, Id id, const OpShape& shape) {
  const Op& op = program.op(id);
  const OpExchange* exchange = op.exchange();
  if (!exchange) return std::nullopt;
  const OperandShape &in = shape.operand[0], &out = shape.operand[shape.count - 1];
  check_sizes(program, op, ranks_of(program, op, id), in, out);
  // Counts the output of a reduce-scatter, the part for each rank of an all-to-all, otherwise the input.
  const OperandShape& counted = exchange->kind == CommKind::reduce_scatter ? out : in;
  const std::int64_t parts = exchange->kind == CommKind::all_to_all ? ranks_of(program, op, id) : 1;
  PlannedExchange planned{.kind = exchange->kind,
                          .reduction = exchange->reduction,
                          .dtype = counted.dtype,
                          .count = counted.elements() / parts,
                          .in = {},
                          .out = {},
                          .pieces = pieces_of(program, op, id, in)};
  if (exchange->kind == CommKind::send) {
    planned.distance = static_cast<std::int64_t>(program.attr(id, "distance"));
    planned.chunks = static_cast<std::int64_t>(program.attr(id, "chunks"));
  }
  return planned;
}

// Merges collectives on adjacent gradients into one; the padding between them is zero on every rank. `fence`:
// guard bytes around each value.
std::vector<PlannedStep> merge_exchanges(const Program& program, std::vector<PlannedStep> steps,
                                         std::int64_t fence) {
  std::vector<PlannedStep> merged;
  for (PlannedStep& step : steps) {
    if (merged.empty() || !follows(program, merged.back(), step, fence)) {
      merged.push_back(std::move(step));
      continue;
    }
    PlannedExchange& bucket = *merged.back().exchange;
    const Address& next = step.exchange->in;
    bucket.in.bytes = bucket.out.bytes = next.offset + next.bytes - bucket.in.offset;
    bucket.count = bucket.in.bytes / size_of(bucket.dtype);
    merged.back().also.push_back(step.op);
    merged.back().operands.push_back(step.operands[0]);
  }
  return merged;
}

// ------------------------------------------------------------ function queues

// Queues of a function's steps.

// Adds the queue if it is new.
std::int32_t queue_like(QueueInfo queue, std::vector<QueueInfo>& queues) {
  const auto found = std::find_if(queues.begin(), queues.end(), [&](const QueueInfo& other) {
    return other.name == queue.name && other.axis == queue.axis && other.device == queue.device;
  });
  const auto at = narrow<std::int32_t>(found - queues.begin());
  if (found == queues.end()) queues.push_back(std::move(queue));
  return at;
}

// Collectives that should not wait for each other have separate communicators.
const char* purpose_of(FunctionKind kind) {
  if (kind == FunctionKind::reduce) return ".reduce";
  if (kind == FunctionKind::tie) return ".tie";
  if (kind == FunctionKind::gather || is_update(kind) || kind == FunctionKind::renew) return ".gather";
  return "";
}

// Returns true for a copy of a value that is fetched, offloaded, or updated elsewhere.
bool moves(const Program& program, const Reach& reach, FunctionKind kind, const PlannedStep& step) {
  const Op& op = program.op(step.op);
  return op.def->copies && (kind == FunctionKind::gather || kind == FunctionKind::reduce ||
                            kind == FunctionKind::put_away || kind == FunctionKind::bring_back ||
                            kind == FunctionKind::clear || (is_update(kind) && reach.crosses(op)));
}

// Copies for another device, fetches and offloads have one queue for each direction: a link carries both at
// once, and neither must delay the staging of inputs. Those of a tier have its kind, such as "nvme.read".
QueueInfo queue_of_kernel(const Program& program, const Reach& reach, FunctionKind kind,
                          const PlannedStep& step) {
  const bool own = step.device == reach.device() && !moves(program, reach, kind, step),
             workers = own && kind != FunctionKind::load;
  const auto ends_in = [&](Space space) {
    return reach.place_of(step.operands.back().value) == MemoryPlace{step.device, space};
  };
  if (const PlanDevice& device = reach.device_at(step.device); device.tier)
    return {device.kind + (ends_in(Space::disk) ? ".write" : ".read"), false, no_axis, 0, -1, step.device};
  std::string name = workers ? "compute" : "copy";
  if (step.device > 0) name += detail::concat(".", step.device);
  if (!own) name += ends_in(Space::device) ? ".in" : ".out";
  return {std::move(name), workers, no_axis, 0, -1, step.device};
}

QueueInfo queue_of_exchange(const Program& program, FunctionKind kind, const PlannedStep& step) {
  const AxisId axis = program.axis_of(step.op);
  return {program.mesh().name(axis) + purpose_of(kind), false, axis, 0, -1, 0};
}

// Returns the least time of a step that ends a piece.
double much_of(const Program& program, const PlannedFunction& function) {
  constexpr double part = 1.0 / 16;
  double all = 0;
  for (const PlannedStep& step : function.steps)
    if (!step.exchange) all += nominal_seconds(program, step);
  return part * all;
}

// Divides the steps into pieces where the queue changes and, with `finely`, after each step that takes a good
// part of the function's time, so that calls of other functions can run in between. Adds new queues to
// `queues`.
std::vector<Piece> divide_by_queue(const Program& program, const Reach& reach,
                                   const PlannedFunction& function, bool finely,
                                   std::vector<QueueInfo>& queues) {
  std::vector<Piece> pieces;
  const double much = finely ? much_of(program, function) : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < function.steps.size(); ++i) {
    const PlannedStep& step = function.steps[i];
    const std::int32_t queue =
        queue_like(step.exchange ? queue_of_exchange(program, function.kind, step)
                                 : queue_of_kernel(program, reach, function.kind, step),
                   queues);
    const auto at = static_cast<std::int32_t>(i);
    // An op across ranks right after a collective does not need its result; later ops that do wait for it.
    const bool apart = (pieces.size() > 1 && looks_across(program, function.steps[pieces.back().first].op)) ||
                       (i > 0 && nominal_seconds(program, function.steps[i - 1]) >= much);
    if (pieces.empty() || pieces.back().queue != queue || apart) pieces.push_back({at, at, queue});
    pieces.back().last = at + 1;
  }
  return pieces;
}

// ------------------------------------------------------------ function scratch

// Scratch of a function: values that no later function reads, and workspaces.

// Bytes that no step needs at the same time may share memory.
class FunctionScratch {
 public:
  // `fence`: guard bytes around each. `workspaces`: the region of workspaces, which may differ from that of
  // values.
  FunctionScratch(Region region, Region workspaces, std::int64_t fence, Layout& layout)
      : region_(region), workspaces_in_(workspaces), fence_(fence), layout_(layout) {}

  // Step `at` uses a value of so many bytes, stored at that place.
  void use(Id value, MemoryPlace place, std::int64_t bytes, std::int32_t at);
  void add_workspace(MemoryPlace place, std::int64_t bytes, std::int32_t at);

  // Call it after all use(). `interleaved`: values in the first range keep the order of their first uses,
  // for merged collectives. Returns bytes by range.
  std::vector<std::int64_t> assign(bool interleaved);

  // Returns the bytes of separate workspaces, by range.
  const std::vector<std::int64_t>& workspace_bytes() const { return apart_; }

  // After assign(): sets addresses of a step's scratch operands and its workspace, and the bytes that are
  // dead after it.
  void place(PlannedStep& step, std::int32_t at, const Allocations& allocations) const;

 private:
  struct Scratch {
    std::size_t range = 0, index = 0;
  };

  Scratch add_lifetime(MemoryPlace place, std::int64_t bytes, std::int32_t at);
  const Lifetime& lifetime_of(const Scratch& scratch) const {
    return lifetimes_[scratch.range][scratch.index];
  }
  Address address_of(const Scratch& scratch) const;

  const Region region_, workspaces_in_;
  const std::int64_t fence_;
  Layout& layout_;
  std::vector<std::vector<Lifetime>> lifetimes_;  // lifetimes by range
  std::map<Id, Scratch> values_;
  std::map<std::int32_t, Address> workspaces_;  // separate workspaces, by step
  std::map<std::int32_t, Scratch> among_;       // workspaces among values, by step
  std::vector<std::int64_t> apart_;
};

void FunctionScratch::use(Id value, MemoryPlace place, std::int64_t bytes, std::int32_t at) {
  const auto [entry, fresh] = values_.try_emplace(value);
  if (fresh) entry->second = add_lifetime(place, bytes, at);
  lifetimes_[entry->second.range][entry->second.index].last = at;
}

void FunctionScratch::add_workspace(MemoryPlace place, std::int64_t bytes, std::int32_t at) {
  if (workspaces_in_ == region_) {
    among_[at] = add_lifetime(place, bytes, at);
    return;
  }
  // Workspaces share bytes: no two are in use at once.
  const std::int32_t range = range_of(layout_, place);
  const auto number = static_cast<std::size_t>(range);
  if (apart_.size() <= number) apart_.resize(number + 1);
  apart_[number] = std::max(apart_[number], align(bytes + 2 * fence_));
  workspaces_[at] = {workspaces_in_, Whose::own, -1, fence_, bytes, no_axis, range};
}

FunctionScratch::Scratch FunctionScratch::add_lifetime(MemoryPlace place, std::int64_t bytes,
                                                       std::int32_t at) {
  const auto range = static_cast<std::size_t>(range_of(layout_, place));
  if (lifetimes_.size() <= range) lifetimes_.resize(range + 1);
  lifetimes_[range].push_back({bytes + 2 * fence_, at, at, -1});
  return {range, lifetimes_[range].size() - 1};
}

std::vector<std::int64_t> FunctionScratch::assign(bool interleaved) {
  std::vector<std::int64_t> bytes;
  for (std::size_t range = 0; range < lifetimes_.size(); ++range)
    bytes.push_back(interleaved && range == 0
                        ? assign_offsets_in_order(lifetimes_[range])
                        : assign_offsets(lifetimes_[range], layout_.alignment_in(layout_.ranges[range])));
  return bytes;
}

Address FunctionScratch::address_of(const Scratch& scratch) const {
  const Lifetime& lifetime = lifetime_of(scratch);
  return {region_,
          Whose::own,
          -1,
          lifetime.offset + fence_,
          lifetime.bytes - 2 * fence_,
          no_axis,
          static_cast<std::int32_t>(scratch.range)};
}

void FunctionScratch::place(PlannedStep& step, std::int32_t at, const Allocations& allocations) const {
  for (PlannedOperand& operand : step.operands) {
    if (operand.value == none || allocations.contains(operand.value)) continue;
    const Scratch& scratch = values_.at(operand.value);
    operand.address = address_of(scratch);
    if (lifetime_of(scratch).last == at) step.dead_after.push_back(operand.address);
  }
  if (const auto found = among_.find(at); found != among_.end()) step.workspace = address_of(found->second);
  if (const auto found = workspaces_.find(at); found != workspaces_.end()) step.workspace = found->second;
  if (step.workspace.bytes > 0) step.dead_after.push_back(step.workspace);
}

// ------------------------------------------------------------ kernel choice

// Choice of a device's kernel for an op on a rank's shards.

[[noreturn]] void refuse_kernel(const Op& op, const OpShape& shape, const PlanDevice& device, bool offered) {
  std::ostringstream types;
  for (int i = 0; i < shape.count; ++i)
    if (shape.operand[i].present) types << (i ? ", " : "") << name_of(shape.operand[i].dtype);
  throw_error(ErrorCode::unsupported, "device '", device.name, "' has no kernel for op '", op.kind(),
              "' on (", types.str(), ")",
              offered ? "; choose another precision" : "; load a plugin that brings one");
}

std::int64_t workspace_of(const Op& op, const OpShape& shape, const PlanDevice& device,
                          const OfferedKernel& offered) {
  constexpr std::int64_t most = std::int64_t{1} << 40;
  const std::int64_t bytes = offered.def->workspace(shape, device.threads);
  if (bytes < 0 || bytes > most)
    throw_error(ErrorCode::bad_input, offered.by, ": the kernel of op '", op.kind(), "' asks for ", bytes,
                " bytes of workspace; its workspace() must give 0 to ", most);
  return bytes;
}

// Checks that the rule holds for a rank's shards as it does for full values: a kernel takes the extents of
// one operand for those of others. Throws an Error otherwise.
void check_parts_agree(const Program& program, const Op& op, const OpShape& parts) {
  const std::span attrs(op.def->attrs, op.def->attr_count);
  if (!std::all_of(attrs.begin(), attrs.end(), [](const auto& attr) { return attr.real; })) return;
  OpShape told = parts;
  const Status status = op.def->rule(&told);
  if (!status.ok()) refuse_op(program, op, "of the parts that a rank has: ", status.message);
  for (std::int32_t i = 0; i < parts.count; ++i)
    if (parts.operand[i].present && told.operand[i].elements() != parts.operand[i].elements())
      refuse_op(program, op, "operand '", op.def->operands[i].name, "' has ", parts.operand[i].elements(),
                " elements on a rank, where the others make ", told.operand[i].elements());
}

// Returns the bytes of its workspace. Throws an Error if the device has no kernel.
std::int64_t choose_kernel(const Op& op, const OpShape& shape, const PlanDevice& device, PlannedStep& step) {
  const OfferedKernel offered = device.kernel(op.kind());
  if (offered.def) step.kernel = offered.def->select(shape);
  if (offered.def) step.writes_first = offered.def->writes_first;
  if (!step.kernel) refuse_kernel(op, shape, device, offered.def != nullptr);
  return offered.def->workspace ? workspace_of(op, shape, device, offered) : 0;
}

// Returns the region of a function's scratch. Reductions, and updates on another device with their copies,
// run concurrently with other functions, so they have separate scratch.
Region scratch_region(const Program& program, const Reach& reach, Id segment, FunctionKind kind) {
  if (kind == FunctionKind::reduce) return Region::bucket;
  if (!is_update(kind)) return Region::scratch;
  const std::vector<Id>& ops = program.segment(segment).ops(kind);
  const bool moves =
      std::any_of(ops.begin(), ops.end(), [&](Id id) { return reach.crosses(program.op(id)); });
  return reach.device() != 0 || moves ? Region::update : Region::scratch;
}

void add_fences(PlannedStep& step, const Address& inside, std::int32_t operand, std::int64_t bytes) {
  Address before = inside, behind = inside;
  before.offset -= bytes;
  before.bytes = bytes;
  behind.offset += inside.bytes;
  behind.bytes = align(inside.bytes) - inside.bytes + bytes;
  step.fences.push_back({before, operand, true});
  step.fences.push_back({behind, operand, false});
}

class FunctionPlanner {
 public:
  FunctionPlanner(const Program& program, const Lowering& lowering, const Allocations& around, Id segment,
                  FunctionKind kind, std::int32_t delay, Plan& plan)
      : program_(program),
        lowering_(lowering),
        around_(around),
        plan_(plan),
        reach_(program, lowering, plan, program.segment(segment).device_of(kind)),
        scratch_(scratch_region(program, reach_, segment, kind), workspace_region(program, segment, kind),
                 lowering.fence, plan.layout) {
    function_.segment = segment;
    function_.kind = kind;
    function_.delay = delay;
    function_.scratch = scratch_region(program, reach_, segment, kind);
  }

  PlannedFunction run() {
    for (Id op : ordered_ops(program_, function_.segment, function_.kind)) {
      if (function_.delay >= 0 && !program_.is_updated_with(op, function_.delay)) continue;
      add_step(op);
      if (looks_across(program_, op)) keep_what_travels();
      if (function_.steps.back().exchange) keep_beside();
    }
    // Values of one merged collective must be adjacent.
    const bool reduces = function_.kind == FunctionKind::reduce;
    function_.scratch_bytes = scratch_.assign(reduces);
    function_.workspace_bytes = scratch_.workspace_bytes();
    for (std::size_t at = 0; at < function_.steps.size(); ++at) give_addresses(at);
    if (reduces) function_.steps = merge_exchanges(program_, std::move(function_.steps), lowering_.fence);
    function_.pieces = divide_by_queue(program_, reach_, function_, plan_.interleave > 1, plan_.queues);
    return std::move(function_);
  }

 private:
  // Workspaces of interleaved microbatches share a region, since their calls run one after the other.
  Region workspace_region(const Program& program, Id segment, FunctionKind kind) const {
    const Region scratch = scratch_region(program, reach_, segment, kind);
    return plan_.interleave > 1 && scratch == Region::scratch ? Region::workspace : scratch;
  }

  void add_step(Id id) {
    const Op& op = program_.op(id);
    const OpShape shape = program_.local_shape(op);
    const auto at = narrow<std::int32_t>(function_.steps.size());
    PlannedStep step;
    step.op = id;
    step.exchange = exchange_of(program_, id, shape);
    if (!step.exchange) {
      check_parts_agree(program_, op, shape);
      step.device = reach_.runner_of(op);
    }
    reach_.check(op, step.device);
    const std::int64_t workspace =
        step.exchange ? 0 : choose_kernel(op, shape, reach_.device_at(step.device), step);
    for (Id value : op.operands) step.operands.push_back(operand_of(value, at));
    if (workspace > 0) scratch_.add_workspace({step.device, Space::device}, workspace, at);
    if (!step.exchange) add_cost(op.cost(shape));
    function_.steps.push_back(std::move(step));
  }

  // Keeps operands of the collectives right before the last step alive: that step must run concurrently with
  // them.
  void keep_what_travels() {
    const auto now = narrow<std::int32_t>(function_.steps.size()) - 1;
    for (std::int32_t at = now - 1; at >= 0 && function_.steps[at].exchange; --at)
      operand_of(function_.steps[at].operands.front().value, now);
  }

  // Keeps operands of consecutive collectives alive: a comm plugin may run them at once.
  void keep_beside() {
    const auto now = narrow<std::int32_t>(function_.steps.size()) - 1;
    for (std::int32_t at = now - 1; at >= 0 && function_.steps[at].exchange; --at)
      for (const PlannedOperand& operand : function_.steps[at].operands) operand_of(operand.value, now);
  }

  // Returns the value as an operand, with its address if it has an allocation.
  PlannedOperand operand_of(Id value, std::int32_t at) {
    if (value == none) return {};
    const auto allocation = plan_.allocations.find(value);
    if (allocation == plan_.allocations.end()) {
      scratch_.use(value, reach_.place_of(value), program_.local_bytes(value), at);
      return {value, {}};
    }
    const Region region = allocation->second.region;
    function_.uses_batch |= facts_of(region).is_staged;
    function_.uses_inputs |= region == Region::input;
    return {value, allocation->second};
  }

  void add_cost(const OpCost& cost) {
    function_.cost.flops += cost.flops;
    function_.cost.bytes += cost.bytes;
  }

  void give_addresses(std::size_t at) {
    PlannedStep& step = function_.steps[at];
    scratch_.place(step, static_cast<std::int32_t>(at), plan_.allocations);
    if (lowering_.fence > 0) fence(step);
    if (!step.exchange) return;
    step.exchange->in = step.operands.front().address;
    step.exchange->out = step.operands.back().address;
  }

  // Adds guard regions. Adjacent values have none between them, so they share the outer ones.
  void fence(PlannedStep& step) const {
    if (!step.kernel) return;
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      const PlannedOperand& operand = step.operands[i];
      if (operand.value == none || reach_.place_of(operand.value).space == Space::disk) continue;
      const auto found = around_.find(operand.value);
      add_fences(step, found == around_.end() ? operand.address : found->second, static_cast<std::int32_t>(i),
                 lowering_.fence);
    }
    if (step.workspace.bytes > 0) add_fences(step, step.workspace, -1, lowering_.fence);
  }

  const Program& program_;
  const Lowering& lowering_;
  const Allocations& around_;
  Plan& plan_;
  const Reach reach_;
  FunctionScratch scratch_;
  PlannedFunction function_;
};

}  // namespace

PlannedFunction plan_function(const Program& program, const Lowering& lowering, const Allocations& around,
                              Id segment, FunctionKind kind, std::int32_t delay, Plan& plan) {
  PlannedFunction function = FunctionPlanner(program, lowering, around, segment, kind, delay, plan).run();
  if (delay >= 0 && kind != FunctionKind::update) read_with_age(program, plan, delay, function);
  return function;
}

}  // namespace prun
