#include "program/recompute.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/min_cut.hpp"
#include "base/text.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- recompute

// Returns the values that change while microbatches run: an op that uses one may find another value when it
// runs again.
std::set<Id> changing_values(const Program& program) {
  std::set<Id> changing;
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (FunctionKind kind : microbatch_functions)
      for (Id id : program.segment(segment).ops(kind)) {
        const Op& op = program.op(id);
        for (std::size_t i = 0; i < op.operands.size(); ++i) {
          if (op.operands[i] == none || op.access(i) == Access::read) continue;
          const bool fresh =
              op.access(i) == Access::write && program.value(op.operands[i]).role == Role::activation;
          if (!fresh) changing.insert(op.operands[i]);
        }
      }
  return changing;
}

// Decides which of forward's results are kept, and which are computed again.
class Selection {
 public:
  Selection(const Program& program, Id segment, const RecomputeChoice& choice)
      : program_(program), segment_(program.segment(segment)), choice_(choice) {
    for (Id id : segment_.ops(FunctionKind::forward))
      each_operand(id, Access::write,
                   [&](Id value) { (may_be_left_out(id, value) ? left_out_ : writer_)[value] = id; });
    cut();
  }

  bool again(Id value) const { return again_.count(value) != 0; }
  Id writer(Id value) const { return writer_.at(value); }
  // Returns the results that their ops need not write, since their readers can do without: each with its op.
  const std::map<Id, Id>& left_out() const { return left_out_; }

  RecomputeEstimate estimate() const {
    RecomputeEstimate result;
    for (Id value : kept_) result.kept_bytes += program_.local_bytes(value);
    for (FunctionKind kind : backward_functions) {
      std::set<Id> ops;
      for (Id id : segment_.ops(kind)) each_operand(id, Access::read, [&](Id value) { collect(value, ops); });
      for (Id id : ops) {
        const OpCost cost = program_.op(id).cost(program_.local_shape(program_.op(id)));
        result.cost.flops += cost.flops;
        result.cost.bytes += cost.bytes;
      }
      for (Id id : segment_.ops(kind)) add_cost_without(id, result.cost);
    }
    return result;
  }

 private:
  // Adds the cost of what a reader does in addition if it does not get what is left out.
  void add_cost_without(Id id, OpCost& cost) const {
    const Op& op = program_.op(id);
    const OpShape with = program_.local_shape(op);
    OpShape without = with;
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (left_out_.count(op.operands[i]) != 0) without.operand[i] = {};
    const OpCost before = op.cost(with), after = op.cost(without);
    cost.flops += std::max(0.0, after.flops - before.flops);
    cost.bytes += std::max(0.0, after.bytes - before.bytes);
  }

  // Says whether both the value's op and all that read it name it as optional.
  bool may_be_left_out(Id op, Id value) const {
    if (!names_optional(op, value) || !may_run_again(program_.op(op))) return false;
    for (const std::vector<Id>& function : segment_.functions)
      for (Id reader : function)
        if (!names_optional(reader, value)) return false;
    return true;
  }

  bool names_optional(Id id, Id value) const {
    const Op& op = program_.op(id);
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] == value && !op.def->operands[i].optional) return false;
    return true;
  }

  // Says whether the value is kept anyway.
  bool is_handed_on(Id value) const { return value == segment_.outgoing || program_.is_carried(value); }

  template <class Body>
  void each_operand(Id id, Access access, Body&& body) const {
    const Op& op = program_.op(id);
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && op.access(i) == access) body(op.operands[i]);
  }

  // Collects the ops that must run again for a function to read this value.
  void collect(Id value, std::set<Id>& ops) const {
    if (again(value) && ops.insert(writer(value)).second)
      each_operand(writer(value), Access::read, [&](Id operand) { collect(operand, ops); });
  }

  bool may_run_again(const Op& op) const {
    if (op.def->effect == Effect::update) return false;
    if (choice_.kind == RecomputeChoice::Kind::nothing) return false;
    if (choice_.kind == RecomputeChoice::Kind::ops &&
        std::none_of(choice_.op_kinds.begin(), choice_.op_kinds.end(),
                     [&](const std::string& kind) { return is_meant(op, kind); }))
      return false;
    return std::none_of(op.operands.begin(), op.operands.end(),
                        [&](Id value) { return changing_.count(value) != 0; });
  }

  // Says whether the op has that kind, also if ranks share out sequences and another op stands for it.
  bool is_meant(const Op& op, const std::string& kind) const {
    if (op.is(kind)) return true;
    const char* const across = program_.registry().find(kind).across;
    return across && op.is(across);
  }

  // Cuts a graph in which each value is an edge that costs its bytes to cut. What an op that may not run
  // again writes comes from the source, what is read after forward flows to the sink: on every way between
  // them lies a value that is kept.
  void cut() {
    std::map<Id, std::size_t> entry;  // node of a value's edge, which leaves at the next node
    for (const auto& [value, op] : writer_) entry.emplace(value, 2 + 2 * entry.size());
    constexpr std::size_t source = 0, sink = 1;
    FlowGraph graph(2 + 2 * entry.size());
    for (const auto& [value, node] : entry)
      graph.add_edge(node, node + 1, is_handed_on(value) ? 0 : program_.local_bytes(value));
    for (Id id : segment_.ops(FunctionKind::forward)) {
      const bool free = may_run_again(program_.op(id));
      each_operand(id, Access::write, [&](Id result) {
        if (left_out_.count(result) != 0) return;
        if (!free) graph.add_edge(source, entry.at(result), FlowGraph::unbounded);
        each_operand(id, Access::read, [&](Id operand) {
          if (const auto found = entry.find(operand); free && found != entry.end())
            graph.add_edge(found->second + 1, entry.at(result), FlowGraph::unbounded);
        });
      });
    }
    for (FunctionKind kind : backward_functions)
      for (Id id : segment_.ops(kind))
        each_operand(id, Access::read, [&](Id value) {
          if (const auto found = entry.find(value); found != entry.end())
            graph.add_edge(found->second + 1, sink, FlowGraph::unbounded);
        });
    const std::vector<bool> late = graph.sink_side(source, sink);
    for (const auto& [value, node] : entry) {
      if (!late[node + 1] || is_handed_on(value)) continue;
      (late[node] ? again_ : kept_).insert(value);
    }
  }

  const Program& program_;
  const SegmentData& segment_;
  const RecomputeChoice& choice_;
  const std::set<Id> changing_ = changing_values(program_);
  std::map<Id, Id> writer_, left_out_;
  std::set<Id> kept_, again_;
};

void leave_out(Program& program, Id segment, Id value, Id writer) {
  program.segment(segment).left_out.emplace(program.op(writer).kind());
  for (const std::vector<Id>& function : program.segment(segment).functions)
    program.replace_in(function, value, none);
  program.forget_value(value);
}

// Clones into one function the ops whose results it reads and does not find.
class Cloning {
 public:
  Cloning(Program& program, Id segment, FunctionKind function, const Selection& selection)
      : program_(program), segment_(segment), function_(function), selection_(selection) {}

  void run() {
    const std::vector<Id> ops = program_.segment(segment_).ops(function_);
    for (Id id : ops)
      for (std::size_t i = 0; i < program_.op(id).operands.size(); ++i)
        if (const Id value = program_.op(id).operands[i]; selection_.again(value))
          program_.replace_operand(id, i, computed(value, id));
  }

 private:
  // Returns the value as computed in this function, by clones of ops that end before `before`.
  Id computed(Id value, Id before) {
    if (const auto known = clones_.find(value); known != clones_.end()) return known->second;
    const Op original = program_.op(selection_.writer(value));
    std::vector<Id> operands = original.operands;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i] == none) continue;
      if (original.access(i) == Access::write)
        operands[i] = clones_[operands[i]] = like(operands[i]);
      else if (selection_.again(operands[i]))
        operands[i] = computed(operands[i], before);
    }
    const Id clone = program_.add_copy(selection_.writer(value), function_, std::move(operands), before);
    program_.op(clone).again = true;
    return clones_.at(value);
  }

  Id like(Id id) {
    Value copy = program_.value(id);
    copy.name += ".again";
    return program_.add_value(std::move(copy));
  }

  Program& program_;
  Id segment_;
  FunctionKind function_;
  const Selection& selection_;
  std::map<Id, Id> clones_;
};

// Computes once what a function computes both again and for itself, such as the gathered input of a layer:
// the first time, for all.
class Merging {
 public:
  Merging(Program& program, Id segment, FunctionKind function)
      : program_(program), segment_(segment), function_(function) {}

  void run() {
    const std::vector<Id> ops = program_.segment(segment_).ops(function_);
    std::vector<Id> first;
    for (Id id : ops) {
      const auto same = std::find_if(first.begin(), first.end(), [&](Id other) { return alike(other, id); });
      if (same == first.end())
        first.push_back(id);
      else
        take(*same, id);
    }
  }

 private:
  bool alike(Id first, Id second) const {
    const Op &a = program_.op(first), &b = program_.op(second);
    if (a.def != b.def || !(a.again || b.again) || a.def->effect == Effect::update) return false;
    for (std::size_t i = 0; i < a.attrs.size(); ++i)
      if (program_.attr(first, a.def->attrs[i].name) != program_.attr(second, a.def->attrs[i].name))
        return false;
    for (std::size_t i = 0; i < a.operands.size(); ++i) {
      const bool reads = a.access(i) == Access::read;
      if (reads ? a.operands[i] != b.operands[i] : !may_be_one(a.operands[i], b.operands[i])) return false;
      if (reads && changing_.count(a.operands[i]) != 0) return false;
    }
    return true;
  }

  bool may_be_one(Id a, Id b) const {
    if (a == none || b == none) return a == b;
    const auto own = [&](Id id) {
      return program_.value(id).role == Role::activation && changing_.count(id) == 0 &&
             id != program_.segment(segment_).outgoing_gradient;
    };
    return own(a) && own(b);
  }

  void take(Id first, Id second) {
    const Op gone = program_.op(second);
    program_.erase_op(second);
    for (std::size_t i = 0; i < gone.operands.size(); ++i)
      if (gone.operands[i] != none && gone.access(i) == Access::write)
        replace(gone.operands[i], program_.op(first).operands[i]);
  }

  void replace(Id gone, Id kept) {
    program_.replace_in(segment_, backward_functions, gone, kept);
    program_.forget_value(gone);
  }

  Program& program_;
  Id segment_;
  FunctionKind function_;
  const std::set<Id> changing_ = changing_values(program_);
};

void check_choice(const Program& program, Id segment, const RecomputeChoice& choice) {
  if (segment == program.step_segment() ||
      program.segment(program.step_segment()).ops(FunctionKind::report).empty())
    throw_error(ErrorCode::bad_input, "segment '", program.segment(segment).name,
                "' has no backward to compute anything again in; recompute belongs in phase 'memory'");
  for (const std::string& kind : choice.op_kinds)
    if (program.registry().find(kind).effect == Effect::update)
      throw_error(ErrorCode::bad_input, "cannot recompute op '", kind,
                  "': it changes what later ops read; choose other ops");
}

}  // namespace

void recompute(Program& program, Id segment, const RecomputeChoice& choice) {
  check_choice(program, segment, choice);
  const Selection selection(program, segment, choice);
  for (const auto& [value, writer] : selection.left_out()) leave_out(program, segment, value, writer);
  for (FunctionKind kind : backward_functions) {
    Cloning(program, segment, kind, selection).run();
    Merging(program, segment, kind).run();
  }
}

RecomputeEstimate estimate_recompute(const Program& program, Id segment, const RecomputeChoice& choice) {
  return Selection(program, segment, choice).estimate();
}

namespace {

// ------------------------------------------------------------------- recompute choices
// Chooses, for segments that leave it to the planner, what to compute again, and says what a program does so.

// Sums over all repetitions of the segments that leave the choice to the planner.
struct Total {
  double kept = 0, cost = 0;
};

// A byte moved counts as one FLOP, so that ops without FLOPs have a cost too.
Total total_of(const Program& program, const RecomputeChoice& choice) {
  Total total;
  for (Id id = 0; id < program.segment_count(); ++id) {
    const SegmentData& segment = program.segment(id);
    if (!segment.recompute_to_fit) continue;
    const RecomputeEstimate estimate = estimate_recompute(program, id, choice);
    total.kept += segment.repeat * estimate.kept_bytes;
    total.cost += static_cast<double>(segment.repeat) * (estimate.cost.flops + estimate.cost.bytes);
  }
  return total;
}

std::set<std::string> kinds_that_run_again(const Program& program) {
  std::set<std::string> kinds;
  for (Id id = 0; id < program.segment_count(); ++id)
    if (program.segment(id).recompute_to_fit)
      for (Id op : program.segment(id).ops(FunctionKind::forward))
        if (program.op(op).def->effect != Effect::update) kinds.emplace(program.op(op).kind());
  return kinds;
}

// Returns the kind that frees most for its cost on top of `choice`, or empty when none frees anything.
std::string best_next(const Program& program, const std::set<std::string>& kinds, RecomputeChoice choice) {
  const Total now = total_of(program, choice);
  std::string best;
  double best_worth = 0;
  choice.op_kinds.emplace_back();
  for (const std::string& kind : kinds) {
    choice.op_kinds.back() = kind;
    const Total then = total_of(program, choice);
    const double worth = (now.kept - then.kept) / std::max(1.0, then.cost - now.cost);
    if (worth > best_worth) {
      best = kind;
      best_worth = worth;
    }
  }
  return best;
}

template <class Body>
void each_again(const Program& program, Body&& body) {
  for (Id id = 0; id < program.segment_count(); ++id)
    for (FunctionKind kind : backward_functions)
      for (Id op : program.segment(id).ops(kind))
        if (program.op(op).again) body(program.segment(id), program.op(op));
}

}  // namespace

bool chooses_recompute(const Program& program) {
  for (Id id = 0; id < program.segment_count(); ++id)
    if (program.segment(id).recompute_to_fit) return true;
  return false;
}

std::vector<RecomputeChoice> recompute_choices(const Program& program) {
  using Kind = RecomputeChoice::Kind;
  std::vector<RecomputeChoice> choices{{}};
  std::set<std::string> kinds = kinds_that_run_again(program);
  RecomputeChoice growing{Kind::ops, {}};
  for (std::string kind; !(kind = best_next(program, kinds, growing)).empty(); kinds.erase(kind)) {
    growing.op_kinds.push_back(kind);
    choices.push_back(growing);
  }
  choices.push_back({Kind::full, {}});
  return choices;
}

std::string recomputed_text(const Program& program) {
  std::vector<std::pair<const SegmentData*, std::set<std::string>>> segments;
  for (Id id = 0; id < program.segment_count(); ++id)
    if (const SegmentData& segment = program.segment(id); !segment.left_out.empty())
      segments.push_back({&segment, segment.left_out});
  each_again(program, [&](const SegmentData& segment, const Op& op) {
    auto at = std::find_if(segments.begin(), segments.end(),
                           [&](const auto& known) { return known.first == &segment; });
    if (at == segments.end()) at = segments.insert(at, {&segment, {}});
    at->second.emplace(op.kind());
  });
  std::vector<std::string> parts;
  parts.reserve(segments.size());
  for (const auto& [segment, kinds] : segments)
    parts.push_back(join(std::vector<std::string>(kinds.begin(), kinds.end()), ", ") + " in " +
                    segment->name);
  return parts.empty() ? "nothing" : join(parts, "; ");
}

double recomputed_flops(const Program& program) {
  double flops = 0;
  each_again(program, [&](const SegmentData& segment, const Op& op) {
    flops += op.cost(program.shape(op)).flops * static_cast<double>(segment.repeat);
  });
  return flops;
}

}  // namespace prun
