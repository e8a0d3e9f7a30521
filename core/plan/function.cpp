#include "plan/function.hpp"

#include <algorithm>
#include <map>
#include <sstream>

#include "plan/regions.hpp"
#include "program/passes.hpp"

namespace prun {

namespace {

class FunctionPlanner {
 public:
  FunctionPlanner(const Program& program, const Lowering& lowering, const Homes& around, Id segment,
                  FunctionKind kind, Plan& plan)
      : program_(program),
        lowering_(lowering),
        homes_(plan.homes),
        around_(around),
        queues_(plan.queues),
        layout_(plan.layout),
        device_(program.segment(segment).device_of(kind)) {
    function_.segment = segment;
    function_.kind = kind;
    function_.scratch = scratch_region();
  }

  PlannedFunction run() {
    for (Id op : ordered_ops()) add_step(op);
    // What travels together must lie together.
    const bool reduces = function_.kind == FunctionKind::reduce;
    for (std::size_t range = 0; range < lifetimes_.size(); ++range) {
      std::vector<Lifetime>& list = lifetimes_[range];
      function_.scratch_bytes.push_back(
          reduces && range == 0 ? assign_offsets_in_order(list)
                                : assign_offsets(list, layout_.alignment_in(layout_.ranges[range])));
    }
    for (PlannedStep& step : function_.steps) place_scratch(step);
    if (lowering_.fence > 0)
      for (PlannedStep& step : function_.steps) fence(step);
    for (PlannedStep& step : function_.steps) address_exchange(step);
    if (reduces) merge_exchanges();
    divide();
    return std::move(function_);
  }

 private:
  // What frames a step exchanges all it can at once, behind all that it can compute before: each way between
  // queues takes time. The order of the others is the program's.
  std::vector<Id> ordered_ops() const {
    std::vector<Id> left = program_.segment(function_.segment).ops(function_.kind), ordered;
    if (function_.segment != program_.step_segment()) return left;
    for (bool exchanges = false; !left.empty(); exchanges = !exchanges)
      for (std::size_t i = 0; i < left.size();) {
        const bool waits = std::any_of(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(i),
                                       [&](Id before) { return depends(left[i], before); });
        if (waits || (program_.op(left[i]).exchange() != nullptr) != exchanges) {
          ++i;
          continue;
        }
        ordered.push_back(left[i]);
        left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
      }
    return ordered;
  }

  // Whether one op must come after another, by the values that they touch.
  bool depends(Id later, Id earlier) const {
    const Op &a = program_.op(later), &b = program_.op(earlier);
    for (std::size_t i = 0; i < a.operands.size(); ++i)
      for (std::size_t j = 0; j < b.operands.size(); ++j)
        if (a.operands[i] != none && a.operands[i] == b.operands[j] &&
            (a.access(i) != Access::read || b.access(j) != Access::read))
          return true;
    return false;
  }

  void add_step(Id id) {
    const Op& op = program_.op(id);
    PlannedStep step;
    step.op = id;
    const OpShape shape = program_.local_shape(op);
    const bool exchanges = lower_exchange(op, id, shape, step);
    if (!exchanges) check_parts(op, shape);
    if (!exchanges) step.device = runner_of(op);
    check_reach(op, step.device);
    const std::int64_t workspace = exchanges ? 0 : choose_kernel(op, shape, device_at(step.device), step);
    const auto at = static_cast<std::int32_t>(function_.steps.size());
    for (Id value : op.operands) {
      step.operands.push_back({value, {}});
      if (value != none) add_operand(step.operands.back(), at);
    }
    if (workspace > 0) {
      workspaces_[at] = add_lifetime({step.device, Space::device}, workspace, at);
    }
    if (!exchanges) add_cost(op.cost(shape));
    function_.steps.push_back(std::move(step));
  }

  // A kernel takes the extents of one operand for those of others: what the rule says of whole values must be
  // so of the parts that a rank has, unless it goes by numbers that are of the whole.
  void check_parts(const Op& op, const OpShape& parts) const {
    const std::span attrs(op.def->attrs, op.def->attr_count);
    if (!std::all_of(attrs.begin(), attrs.end(), [](const auto& attr) { return attr.real; })) return;
    OpShape told = parts;
    const Status status = op.def->rule(&told);
    if (!status.ok()) refuse(op, "of the parts that a rank has: ", status.message);
    for (std::int32_t i = 0; i < parts.count; ++i)
      if (parts.operand[i].present && told.operand[i].elements() != parts.operand[i].elements())
        refuse(op, "operand '", op.def->operands[i].name, "' has ", parts.operand[i].elements(),
               " elements on a rank, where the others make ", told.operand[i].elements());
  }

  // ------------------------------------------------------------- devices and spaces

  const PlanDevice& device_at(std::int32_t number) const {
    return lowering_.devices[static_cast<std::size_t>(number)];
  }

  MemoryPlace place_of(Id value) const {
    const auto home = homes_.find(value);
    if (home != homes_.end()) return layout_.ranges[static_cast<std::size_t>(home->second.range)].place;
    return program_.value(value).place.value_or(MemoryPlace{device_, Space::device});
  }

  bool reaches(std::int32_t device, MemoryPlace place) const {
    const PlanDevice& own = device_at(device);
    switch (place.space) {
      case Space::device: return device == place.device;
      case Space::pinned: return own.host_memory || own.tier || own.kind == device_at(place.device).kind;
      case Space::host: return own.host_memory || own.tier;
      case Space::disk: return own.tier && device == place.device;
    }
    return false;
  }

  bool reaches_all(std::int32_t device, const Op& op) const {
    return std::all_of(op.operands.begin(), op.operands.end(),
                       [&](Id value) { return value == none || reaches(device, place_of(value)); });
  }

  // The function's device; of a copy that this cannot do, one that can: rather one that does it meanwhile.
  std::int32_t runner_of(const Op& op) const {
    if (!op.def->copies || reaches_all(device_, op)) return device_;
    std::int32_t runner = device_;
    for (std::int32_t device = 0; device < static_cast<std::int32_t>(lowering_.devices.size()); ++device)
      if (reaches_all(device, op) &&
          (runner == device_ || (device_at(device).asynchronous && !device_at(runner).asynchronous)))
        runner = device;
    return runner;
  }

  // From one memory to another.
  bool crosses(const Op& op) const {
    return op.def->copies && place_of(op.operands.front()) != place_of(op.operands.back());
  }

  std::string device_text(std::int32_t device) const {
    return detail::concat("device ", device, " ('", device_at(device).name, "')");
  }

  void check_reach(const Op& op, std::int32_t device) const {
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none) continue;
      const MemoryPlace place = place_of(op.operands[i]);
      if (reaches(device, place)) continue;
      const std::string out_of = place.space == Space::disk ? std::string("no kernel reaches")
                                                            : device_text(device) + " does not reach";
      refuse(op, "operand '", op.def->operands[i].name, "' ('", program_.value(op.operands[i]).name,
             "') lies in ", name_of(place.space), " of ", device_text(place.device), ", which ", out_of,
             "; place it, or a copy of it, in memory of the device that runs ", name_of(op.function));
    }
  }

  // The one of that name; added if there is none.
  std::int32_t queue_like(QueueInfo queue) {
    const auto found = std::find_if(queues_.begin(), queues_.end(), [&](const QueueInfo& other) {
      return other.name == queue.name && other.axis == queue.axis;
    });
    const auto at = static_cast<std::int32_t>(found - queues_.begin());
    if (found == queues_.end()) queues_.push_back(std::move(queue));
    return at;
  }

  // Copies that a device does for another's function, and those of what is fetched and of what leaves, have a
  // queue each way: a link carries both at once, and neither may hold up what is loaded.
  std::int32_t queue_of_kernel(const PlannedStep& step) {
    const FunctionKind kind = function_.kind;
    const bool moves = (kind == FunctionKind::gather || kind == FunctionKind::reduce ||
                        kind == FunctionKind::put_away || kind == FunctionKind::bring_back ||
                        (kind == FunctionKind::update && crosses(program_.op(step.op)))) &&
                       program_.op(step.op).def->copies;
    const bool own = step.device == device_ && !moves, workers = own && function_.kind != FunctionKind::load;
    std::string name = workers ? "compute" : "copy";
    if (step.device > 0) name += detail::concat(".", step.device);
    if (!own) {
      const MemoryPlace to = place_of(step.operands.back().value);
      const Space its_own = device_at(step.device).tier ? Space::disk : Space::device;
      name += to == MemoryPlace{step.device, its_own} ? ".in" : ".out";
    }
    return queue_like({std::move(name), workers, no_axis, 0, -1, step.device});
  }

  void add_cost(const OpCost& cost) {
    function_.cost.flops += cost.flops;
    function_.cost.bytes += cost.bytes;
  }

  bool lower_exchange(const Op& op, Id id, const OpShape& shape, PlannedStep& step) const {
    const OpExchange* exchange = op.exchange();
    if (!exchange) return false;
    const OperandShape &in = shape.operand[0], &out = shape.operand[shape.count - 1];
    // A reduce-scatter counts what is left of it, the others what goes in.
    const OperandShape& counted = exchange->kind == CommKind::reduce_scatter ? out : in;
    check_sizes(op, ranks_of(op, id), in, out);
    step.exchange = PlannedExchange{
        exchange->kind,       exchange->reduction, counted.dtype, counted.elements(), -1, {}, {},
        pieces_of(op, id, in)};
    return true;
  }

  // What is exchanged as it lies, along a dimension, is as many pieces as there are places before that.
  std::int64_t pieces_of(const Op& op, Id id, const OperandShape& in) const {
    std::int64_t pieces = 1;
    if (op.has_attr("direct") && program_.attr(id, "direct") != 0)
      for (auto dim = static_cast<std::int64_t>(program_.attr(id, "dim")); dim-- > 0;)
        pieces *= in.dims[dim].extent;
    return pieces;
  }

  template <class... Parts>
  [[noreturn]] void refuse(const Op& op, const Parts&... parts) const {
    throw_error(ErrorCode::bad_input, "segment '", program_.segment(op.segment).name, "', op '", op.kind(),
                "': ", detail::concat(parts...));
  }

  std::int64_t ranks_of(const Op& op, Id id) const {
    const double axis = program_.attr(id, "axis");
    if (axis < 0 || axis >= static_cast<double>(program_.mesh().size()))
      refuse(op, "the mesh has no axis ", axis, " to exchange over");
    const std::int64_t ranks = program_.mesh().extent(static_cast<AxisId>(axis));
    if (ranks == 1) refuse(op, "axis ", axis, " of the mesh has one rank; leave the exchange out");
    return ranks;
  }

  // A comm plugin reads and writes as much as the kind says.
  void check_sizes(const Op& op, std::int64_t ranks, const OperandShape& in, const OperandShape& out) const {
    const CommKind kind = op.exchange()->kind;
    const std::int64_t given = in.elements() * (kind == CommKind::all_gather ? ranks : 1);
    const std::int64_t wanted = out.elements() * (kind == CommKind::reduce_scatter ? ranks : 1);
    if (in.dtype != out.dtype || given != wanted)
      refuse(op, name_of(kind), " over ", ranks, " ranks does not make ", out.elements(), " elements in ",
             name_of(out.dtype), " of ", in.elements(), " in ", name_of(in.dtype),
             "; exchange a value that lies as it needs");
  }

  static void address_exchange(PlannedStep& step) {
    if (!step.exchange) return;
    step.exchange->in = step.operands.front().address;
    step.exchange->out = step.operands.back().address;
  }

  // Gradients that lie side by side travel together: the padding between them is zero on every rank.
  void merge_exchanges() {
    std::vector<PlannedStep> merged;
    for (PlannedStep& step : function_.steps) {
      if (merged.empty() || !follows(merged.back(), step)) {
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
    function_.steps = std::move(merged);
  }

  bool follows(const PlannedStep& a, const PlannedStep& b) const {
    if (!a.exchange || !b.exchange || program_.axis_of(a.op) != program_.axis_of(b.op)) return false;
    if (!sums_in_place(a) || !sums_in_place(b)) return false;
    // What two stages hold must be summed in the same order on both, which goes by the place within an
    // exchange.
    if (is_tied(program_, a.operands.back().value) || is_tied(program_, b.operands.front().value))
      return false;
    const Address &x = a.exchange->in, &y = b.exchange->in;
    return a.exchange->dtype == b.exchange->dtype && x.region == y.region &&
           (x.region == Region::gradient || x.region == Region::unreduced || x.region == Region::bucket) &&
           x.whose == y.whose && x.instance == y.instance && x.range == y.range &&
           align(x.offset + x.bytes) + 2 * lowering_.fence == y.offset;
  }

  bool sums_in_place(const PlannedStep& step) const {
    return program_.op(step.op).exchanges_in_place() && step.exchange->reduction == Reduction::sum;
  }

  std::int32_t queue_of(const PlannedStep& step) {
    if (!step.exchange) return queue_of_kernel(step);
    const AxisId axis = program_.axis_of(step.op);
    return queue_like({program_.mesh().name(axis) + purpose(), false, axis, 0, -1, 0});
  }

  // Exchanges that should not wait for each other have communicators of their own.
  const char* purpose() const {
    if (function_.kind == FunctionKind::reduce) return ".reduce";
    if (function_.kind == FunctionKind::tie) return ".tie";
    if (function_.kind == FunctionKind::gather || function_.kind == FunctionKind::update) return ".gather";
    return "";
  }

  void divide() {
    for (std::size_t i = 0; i < function_.steps.size(); ++i) {
      const std::int32_t queue = queue_of(function_.steps[i]);
      const auto at = static_cast<std::int32_t>(i);
      if (function_.pieces.empty() || function_.pieces.back().queue != queue)
        function_.pieces.push_back({at, at, queue});
      function_.pieces.back().last = at + 1;
    }
  }

  static std::int64_t choose_kernel(const Op& op, const OpShape& shape, const PlanDevice& device,
                                    PlannedStep& step) {
    const OfferedKernel offered = device.kernel(op.kind());
    if (offered.def) step.kernel = offered.def->select(shape);
    if (offered.def) step.writes_first = offered.def->writes_first;
    if (!step.kernel) {
      std::ostringstream types;
      for (int i = 0; i < shape.count; ++i)
        if (shape.operand[i].present) types << (i ? ", " : "") << name_of(shape.operand[i].dtype);
      throw_error(ErrorCode::unsupported, "device '", device.name, "' has no kernel for op '", op.kind(),
                  "' on (", types.str(), ")",
                  offered.def ? "; choose another precision" : "; load a plugin that brings one");
    }
    return offered.def->workspace ? workspace_of(op, shape, device, offered) : 0;
  }

  static std::int64_t workspace_of(const Op& op, const OpShape& shape, const PlanDevice& device,
                                   const OfferedKernel& offered) {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    const std::int64_t bytes = offered.def->workspace(shape, device.threads);
    if (bytes < 0 || bytes > most)
      throw_error(ErrorCode::bad_input, offered.by, ": the kernel of op '", op.kind(), "' asks for ", bytes,
                  " bytes of workspace; its workspace() must give 0 to ", most);
    return bytes;
  }

  // Which of a range's lifetimes.
  struct Scratch {
    std::size_t range = 0, index = 0;
  };

  Scratch add_lifetime(MemoryPlace place, std::int64_t bytes, std::int32_t at) {
    const auto range = static_cast<std::size_t>(range_of(layout_, place));
    if (lifetimes_.size() <= range) lifetimes_.resize(range + 1);
    lifetimes_[range].push_back({bytes + 2 * lowering_.fence, at, at, -1});
    return {range, lifetimes_[range].size() - 1};
  }
  Lifetime& lifetime_of(const Scratch& scratch) { return lifetimes_[scratch.range][scratch.index]; }
  Address address_of(const Scratch& scratch) {
    const Lifetime& lifetime = lifetime_of(scratch);
    return {function_.scratch,
            Whose::own,
            -1,
            lifetime.offset + lowering_.fence,
            lifetime.bytes - 2 * lowering_.fence,
            no_axis,
            static_cast<std::int32_t>(scratch.range)};
  }

  void add_operand(PlannedOperand& operand, std::int32_t at) {
    const auto home = homes_.find(operand.value);
    if (home != homes_.end()) {
      operand.address = home->second;
      function_.uses_batch |=
          operand.address.region == Region::batch || operand.address.region == Region::scalars;
      function_.uses_inputs |= operand.address.region == Region::input;
      return;
    }
    const auto [entry, fresh] = scratch_.try_emplace(operand.value);
    if (fresh) entry->second = add_lifetime(place_of(operand.value), program_.local_bytes(operand.value), at);
    lifetime_of(entry->second).last = at;
  }

  // A reduction runs beside other functions, and so does an update on another device, or the copies for one:
  // they share no scratch with them.
  Region scratch_region() const {
    if (function_.kind == FunctionKind::reduce) return Region::bucket;
    if (function_.kind != FunctionKind::update) return Region::scratch;
    const std::vector<Id>& ops = program_.segment(function_.segment).ops(function_.kind);
    const bool moves = std::any_of(ops.begin(), ops.end(), [&](Id id) { return crosses(program_.op(id)); });
    return device_ != 0 || moves ? Region::update : Region::scratch;
  }

  void place_scratch(PlannedStep& step) {
    const auto at = static_cast<std::int32_t>(&step - function_.steps.data());
    for (PlannedOperand& operand : step.operands) {
      if (operand.value == none || homes_.count(operand.value) != 0) continue;
      const Scratch& scratch = scratch_.at(operand.value);
      operand.address = address_of(scratch);
      if (lifetime_of(scratch).last == at) step.dead_after.push_back(operand.address);
    }
    if (const auto found = workspaces_.find(at); found != workspaces_.end()) {
      step.workspace = address_of(found->second);
      step.dead_after.push_back(step.workspace);
    }
  }

  // Values that lie side by side have no room between them: the fences are those of all of them.
  void fence(PlannedStep& step) const {
    if (!step.kernel) return;
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      const PlannedOperand& operand = step.operands[i];
      if (operand.value == none || place_of(operand.value).space == Space::disk) continue;
      const auto found = around_.find(operand.value);
      add_fences(step, found == around_.end() ? operand.address : found->second,
                 static_cast<std::int32_t>(i));
    }
    if (step.workspace.bytes > 0) add_fences(step, step.workspace, -1);
  }

  void add_fences(PlannedStep& step, const Address& inside, std::int32_t operand) const {
    Address before = inside, behind = inside;
    before.offset -= lowering_.fence;
    before.bytes = lowering_.fence;
    behind.offset += inside.bytes;
    behind.bytes = align(inside.bytes) - inside.bytes + lowering_.fence;
    step.fences.push_back({before, operand, true});
    step.fences.push_back({behind, operand, false});
  }

  const Program& program_;
  const Lowering& lowering_;
  const Homes& homes_;
  const Homes& around_;
  std::vector<QueueInfo>& queues_;
  Layout& layout_;
  const std::int32_t device_;
  PlannedFunction function_;
  std::vector<std::vector<Lifetime>> lifetimes_;  // by range
  std::map<Id, Scratch> scratch_;
  std::map<std::int32_t, Scratch> workspaces_;
};

}  // namespace

PlannedFunction plan_function(const Program& program, const Lowering& lowering, const Homes& around,
                              Id segment, FunctionKind kind, Plan& plan) {
  return FunctionPlanner(program, lowering, around, segment, kind, plan).run();
}

}  // namespace prun
