#include "placement/placement.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

namespace prun {
namespace {

bool lists(const Name (&names)[max_marks], const Name& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool has_dim(const Value& value, const Name& name) {
  return std::any_of(value.dims.begin(), value.dims.end(), [&](const Dim& d) { return d.name == name; });
}

// One axis of the mesh.
class AxisPass {
 public:
  AxisPass(Program& program, std::size_t axis) : program_(program), axis_(axis) {
    for (const Split& split : program.splits())
      if (split.axis == static_cast<std::int32_t>(axis)) dims_.push_back(split.dim);
  }

  void run() {
    place_what_stays();
    const Id step = program_.step_segment(), end = program_.segment_count();
    visit(step, FunctionKind::load);
    visit(step, FunctionKind::begin);
    for (Id s = step + 1; s < end; ++s) visit(s, FunctionKind::zero);
    for (Id s = step + 1; s < end; ++s) visit_forward(s);
    for (Id s = end; s-- > step + 1;) visit_backward(s);
    for (FunctionKind kind : {FunctionKind::reduce, FunctionKind::norm})
      for (Id s = step + 1; s < end; ++s) visit(s, kind);
    visit(step, FunctionKind::finish);
    for (Id s = step + 1; s < end; ++s) visit(s, FunctionKind::update);
    visit(step, FunctionKind::report);
  }

 private:
  const std::string& axis_name() const { return program_.mesh().axes()[axis_].name; }
  std::int64_t extent() const { return program_.mesh().extent(axis_); }

  template <class... Parts>
  [[noreturn]] void refuse(const Op& op, const Parts&... parts) const {
    throw_error(ErrorCode::unsupported, "axis '", axis_name(), "': segment '",
                program_.segment(op.segment).name, "', op '", op.kind(), "': ", detail::concat(parts...));
  }

  // ------------------------------------------------------------- how a value lies at this point of the step

  AxisPlacement now(Id id) const {
    const auto found = now_.find(id);
    return found == now_.end() ? program_.value(id).on(axis_) : found->second;
  }

  // Records it for good: memory is laid out by it.
  void settle(Id id, const AxisPlacement& placement) {
    Value& value = program_.value(id);
    if (placement.is_sharded()) check_divides(value, placement.dim);
    value.placement.resize(program_.mesh().size());
    value.placement[axis_] = placement;
    now_[id] = placement;
  }

  void check_divides(const Value& value, const Name& name) const {
    std::int64_t parts = extent(), whole = 0;
    for (const Dim& dim : value.dims)
      if (dim.name == name) whole = dim.extent;
    for (std::size_t axis = 0; axis < axis_; ++axis)
      if (value.on(axis) == AxisPlacement::sharded(name)) parts *= program_.mesh().extent(axis);
    if (whole % parts != 0)
      throw_error(ErrorCode::unsupported, "dimension '", name.view(), "' of '", value.name, "' is ", whole,
                  ", which axis '", axis_name(), "' cannot split into ", parts, " equal parts");
  }

  // Values that exist before a step: sharded on the first asked dimension that they have.
  void place_what_stays() {
    for (Id id = 0; id < program_.value_count(); ++id) {
      const Value& value = program_.value(id);
      if (value.role == Role::activation || value.role == Role::runtime) continue;
      AxisPlacement placement;
      for (const Name& dim : dims_)
        if (placement.is_replicated() && has_dim(value, dim)) placement = AxisPlacement::sharded(dim);
      if (counts_over_axis(value)) placement = AxisPlacement::partial();
      settle(id, placement);
    }
  }

  bool counts_over_axis(const Value& value) const {
    return std::any_of(value.counted.begin(), value.counted.end(), [&](const Name& name) {
      return name == Name("*") || std::find(dims_.begin(), dims_.end(), name) != dims_.end();
    });
  }

  // ------------------------------------------------------------- the walk

  void visit_forward(Id id) {
    SegmentData& segment = program_.segment(id);
    if (segment.incoming != none) settle(segment.incoming, handed_on_);
    visit(id, FunctionKind::forward);
    if (segment.outgoing == none) return;
    const AxisPlacement wanted = segment.repeat > 1 ? handed_on_ : without_partial(now(segment.outgoing));
    program_.segment(id).outgoing = converted(segment.outgoing, wanted, id, FunctionKind::forward, none);
    handed_on_ = wanted;
  }

  // Gradients of what is handed on lie as it does itself.
  void visit_backward(Id id) {
    const SegmentData& segment = program_.segment(id);
    if (segment.outgoing_gradient != none) settle(segment.outgoing_gradient, now(segment.outgoing));
    visit(id, FunctionKind::backward);
    if (const Id gradient = program_.segment(id).incoming_gradient; gradient != none)
      program_.segment(id).incoming_gradient =
          converted(gradient, now(program_.segment(id).incoming), id, FunctionKind::backward, none);
    visit(id, FunctionKind::backward_weight);
  }

  static AxisPlacement without_partial(const AxisPlacement& placement) {
    return placement.is_partial() ? AxisPlacement::replicated() : placement;
  }

  void visit(Id segment, FunctionKind kind) {
    exchanged_.clear();
    const std::vector<Id> ops = program_.segment(segment).ops(kind);
    for (Id op : ops) place(op);
  }

  // ------------------------------------------------------------- one op

  void place(Id id) {
    const Op op = program_.op(id);
    if (op.kind() == "all_reduce_update") return;  // of an axis before this one: here it changes nothing
    OpShape shape = program_.shape(op);
    raise(op.def->rule(&shape));
    const std::optional<Name> split = choose_split(op, shape);
    const bool passes = !split && passes_partial(op, shape);
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && op.access(i) == Access::read)
        need(op, id, i, passes && linear(shape, i) ? AxisPlacement::partial() : under(split, op.operands[i]));
    const AxisPlacement sum = passes || (split && lists(shape.sums, *split)) ? AxisPlacement::partial()
                                                                             : AxisPlacement::replicated();
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && op.access(i) != Access::read)
        produce(op, i, under(split, op.operands[i], sum));
  }

  // How an operand lies when the op is split along that dimension; `otherwise` without the dimension.
  AxisPlacement under(const std::optional<Name>& split, Id id,
                      AxisPlacement otherwise = AxisPlacement::replicated()) const {
    return split && has_dim(program_.value(id), *split) ? AxisPlacement::sharded(*split) : otherwise;
  }

  std::optional<Name> choose_split(const Op& op, const OpShape& shape) const {
    for (const Name& dim : dims_) {
      if (lists(shape.wholes, dim)) continue;
      for (std::size_t i = 0; i < op.operands.size(); ++i) {
        const Id id = op.operands[i];
        if (id == none || (op.access(i) == Access::write && program_.value(id).role == Role::activation))
          continue;
        if (now(id) == AxisPlacement::sharded(dim)) return dim;
      }
    }
    return std::nullopt;
  }

  static bool linear(const OpShape& shape, std::size_t i) { return (shape.linear >> i & 1u) != 0; }

  // An op that is linear in some operands passes partial sums on if all of these are partial.
  // What the host reads must be whole.
  bool passes_partial(const Op& op, const OpShape& shape) const {
    bool any = false;
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] != none && op.access(i) == Access::write &&
          program_.value(op.operands[i]).role == Role::staging)
        return false;
      if (op.operands[i] == none || op.access(i) != Access::read || !linear(shape, i)) continue;
      if (!now(op.operands[i]).is_partial()) return false;
      any = true;
    }
    return any;
  }

  // Operand i is read as `wanted`. `op` is a copy: the program grows.
  void need(const Op& op, Id id, std::size_t i, const AxisPlacement& wanted) {
    const Id operand = op.operands[i];
    const AxisPlacement have = now(operand);
    if (have == wanted) return;
    const Value& value = program_.value(operand);
    if (value.role == Role::activation) {
      program_.replace_operand(id, i, converted(operand, wanted, op.segment, op.function, id));
    } else if (have.is_partial() && wanted.is_replicated() &&
               (value.role == Role::gradient || value.role == Role::runtime)) {
      sum_in_place(operand, op, id);
    } else {
      refuse(op, "operand '", op.def->operands[i].name, "' ('", value.name, "') is ", to_text(have),
             " but is needed ", to_text(wanted), "; this version does not exchange that");
    }
  }

  void sum_in_place(Id id, const Op& op, Id before) {
    if (program_.value(id).role == Role::gradient)
      sum_gradient(id);
    else
      add_exchange(op.segment, op.function, "all_reduce_update", id, before);
    now_[id] = AxisPlacement::replicated();
  }

  Id add_exchange(Id segment, FunctionKind function, const char* kind, Id id, Id before) {
    const AttrValue axis{"axis", static_cast<double>(axis_)};
    return program_.add_op(segment, function, Part::input, kind, {id}, std::span(&axis, 1), before);
  }

  // In a function of its own, which may run under backward. Where it travels in another type than it is kept
  // in, all casts come first and all casts back last, so that it is one exchange.
  void sum_gradient(Id id) {
    const Id segment = program_.value(id).segment;
    const DType kept = program_.value(id).dtype, travels = program_.precision().reduce;
    if (kept == travels) {
      add_exchange(segment, FunctionKind::reduce, "all_reduce_update", id, none);
      return;
    }
    const auto cast = [](DType to, DType from) {
      return std::array{AttrValue{"to", static_cast<double>(to)},
                        AttrValue{"from", static_cast<double>(from)}};
    };
    const Id exchange =
        first_in_reduce(segment, [&](const Op& op) { return op.kind() == "all_reduce_update"; });
    const Id narrow = program_.add_op_creating(segment, FunctionKind::reduce, Part::input, "cast",
                                               std::span(&id, 1), cast(travels, kept), exchange)[0];
    program_.value(narrow).placement = program_.value(id).placement;
    const Id back = first_in_reduce(segment, [&](const Op& op) {
      return op.kind() == "cast" && program_.value(op.operands[1]).role == Role::gradient;
    });
    add_exchange(segment, FunctionKind::reduce, "all_reduce_update", narrow, back);
    program_.add_op(segment, FunctionKind::reduce, Part::input, "cast", {narrow, id}, cast(kept, travels));
  }

  template <class Wanted>
  Id first_in_reduce(Id segment, Wanted&& wanted) const {
    for (Id op : program_.segment(segment).ops(FunctionKind::reduce))
      if (wanted(program_.op(op))) return op;
    return none;
  }

  // The same value lying as wanted; exchanged once a function.
  Id converted(Id id, const AxisPlacement& wanted, Id segment, FunctionKind function, Id before) {
    const AxisPlacement have = now(id);
    if (have == wanted) return id;
    for (const auto& [from, to] : exchanged_)
      if (from == id && now(to) == wanted) return to;
    if (!have.is_partial() || !wanted.is_replicated())
      throw_error(ErrorCode::unsupported, "axis '", axis_name(), "': segment '",
                  program_.segment(segment).name, "': '", program_.value(id).name, "' is ", to_text(have),
                  " but is needed ", to_text(wanted), "; this version does not exchange that");
    const AttrValue axis{"axis", static_cast<double>(axis_)};
    const Id sum = program_.add_op_creating(segment, function, Part::input, "all_reduce", std::span(&id, 1),
                                            std::span(&axis, 1), before)[0];
    program_.value(sum).placement = program_.value(id).placement;
    settle(sum, AxisPlacement::replicated());
    exchanged_.push_back({id, sum});
    return sum;
  }

  // Operand i is written or accumulated into, as `placement`.
  void produce(const Op& op, std::size_t i, const AxisPlacement& placement) {
    const Id id = op.operands[i];
    const Value& value = program_.value(id);
    if (op.kind() == "zero") {
      cleared_.insert(id);
    } else if (value.role == Role::activation) {
      settle(id, placement);
    } else if (placement.is_sharded() || now(id).is_sharded()) {
      if (now(id) != placement)
        refuse(op, "'", value.name, "' is ", to_text(now(id)), " but would be written ", to_text(placement));
    } else if (op.access(i) == Access::write || value.role == Role::runtime || value.role == Role::gradient) {
      accumulate(op, i, placement);
    } else if (placement.is_partial()) {
      refuse(op, "'", value.name, "' would become a partial sum");
    }
  }

  // Replicated and partial contributions to one sum cannot be told apart afterwards.
  void accumulate(const Op& op, std::size_t i, const AxisPlacement& placement) {
    const Id id = op.operands[i];
    const bool first = op.access(i) == Access::write || cleared_.erase(id) != 0;
    if (!first && now(id) != placement)
      refuse(op, "adds ", to_text(placement), " to '", program_.value(id).name, "', which is ",
             to_text(now(id)));
    settle(id, placement);
  }

  Program& program_;
  std::size_t axis_;
  std::vector<Name> dims_;  // to lie on this axis, first come first
  std::map<Id, AxisPlacement> now_;
  std::set<Id> cleared_;
  AxisPlacement handed_on_;
  std::vector<std::pair<Id, Id>> exchanged_;  // in this function: value, the same lying otherwise
};

}  // namespace

void place_on_mesh(Program& program) {
  for (std::size_t axis = 0; axis < program.mesh().size(); ++axis)
    if (program.mesh().extent(axis) > 1) AxisPass(program, axis).run();
}

}  // namespace prun
