#include "placement/placement.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "placement/direct_exchanges.hpp"
#include "placement/split_ops.hpp"
#include "program/passes.hpp"
#include "program/step.hpp"

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
  AxisPass(Program& program, AxisId axis) : program_(program), axis_(axis) {
    for (const Split& split : program.requests().splits)
      if (split.axis == axis) dims_.push_back(split.dim);
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
    for (FunctionKind kind : {FunctionKind::diagnose, FunctionKind::update})
      for (Id s = step + 1; s < end; ++s) visit(s, kind);
    visit(step, FunctionKind::report);
  }

 private:
  const std::string& axis_name() const { return program_.mesh().name(axis_); }
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
    std::int64_t parts = extent();
    std::string axes;
    for (AxisId axis = 0; axis < axis_; ++axis)
      if (value.on(axis) == AxisPlacement::sharded(name)) {
        parts *= program_.mesh().extent(axis);
        axes += in_recipe(axis) + " x ";
      }
    for (const Dim& dim : value.dims)
      if (dim.name == name && dim.extent % parts != 0)
        refuse_parts(value, dim, parts, axes + in_recipe(axis_));
  }

  // In the recipe's words where it gave the extent.
  [[noreturn]] void refuse_parts(const Value& value, const Dim& dim, std::int64_t parts,
                                 const std::string& axes) const {
    if (const RecipeSize* size = program_.recipe_size(dim))
      throw_error(ErrorCode::unsupported, size->key, " = ", size->value, " cannot be split over ", axes,
                  "; choose a multiple of ", parts);
    throw_error(ErrorCode::unsupported, "dimension '", dim.name.view(), "' of '", value.name, "' is ",
                dim.extent, ", which axis '", axis_name(), "' cannot split into ", parts, " equal parts");
  }

  std::string in_recipe(AxisId axis) const {
    const Axis& is = program_.mesh().axes()[axis];
    return detail::concat(is.name, " = ", is.extent);
  }

  // Values that exist before a step: sharded on the first asked dimension that they have. A microbatch's
  // inputs come in parts only if their dimension is the first that was asked for: what needs weights in parts
  // may need them whole.
  void place_what_stays() {
    for (Id id = 0; id < program_.value_count(); ++id) {
      const Value& value = program_.value(id);
      if (value.role == Role::activation || value.role == Role::runtime) continue;
      const bool input = value.role == Role::input || value.role == Role::staging;
      AxisPlacement placement;
      for (const Name& dim : dims_) {
        if (placement.is_replicated() && has_dim(value, dim)) placement = AxisPlacement::sharded(dim);
        if (input) break;
      }
      if (counts_over_axis(value)) placement = AxisPlacement::partial();
      settle(id, placement);
    }
  }

  bool counts_over_axis(const Value& value) const {
    return std::any_of(value.counted.begin(), value.counted.end(), [&](const Name& name) {
      return name == Name("*") || (!dims_.empty() && dims_.front() == name);
    });
  }

  // ------------------------------------------------------------- the walk

  void visit_forward(Id id) {
    SegmentData& segment = program_.segment(id);
    if (segment.incoming != none) settle(segment.incoming, handed_on_);
    visit(id, FunctionKind::forward);
    if (segment.outgoing == none) return;
    const AxisPlacement wanted = segment.repeat > 1 ? handed_on_ : at_rest(segment.outgoing);
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

  // How a value is handed on: a partial sum is summed first, in parts where it can be.
  AxisPlacement at_rest(Id id) const {
    if (!now(id).is_partial()) return now(id);
    for (const Name& dim : dims_)
      if (has_dim(program_.value(id), dim)) return AxisPlacement::sharded(dim);
    return AxisPlacement::replicated();
  }

  void visit(Id segment, FunctionKind kind) {
    exchanged_.clear();
    const std::vector<Id> ops = program_.segment(segment).ops(kind);
    for (Id op : ops) place(op);
  }

  // ------------------------------------------------------------- one op

  void place(Id id) {
    const Op op = program_.op(id);
    OpShape shape = program_.shape(op);
    raise(op.def->rule(&shape));
    if (op.exchange() && program_.axis_of(id) == axis_) {
      meet_exchange(op, shape);
      return;
    }
    if (op.exchanges_in_place()) {  // of another axis: here it changes nothing
      sum_twin_alike(op, id);
      visited_.push_back(id);
      return;
    }
    const bool passes = passes_partial(op, shape);
    const std::optional<Name> split = passes ? std::nullopt : choose_split(op, shape);
    const bool sums = split && lists(shape.sums, *split);
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none || op.access(i) != Access::read) continue;
      // What is linear and added to a partial sum must count once.
      const bool summand = linear(shape, i) && (passes || sums);
      need(op, id, i, under(split, op.operands[i], summand));
    }
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && op.access(i) != Access::read)
        produce(op, id, i, under(split, op.operands[i], passes || sums));
    visited_.push_back(id);
  }

  // Stands in the program already: it must find what it changes.
  void meet_exchange(const Op& op, const OpShape& shape) {
    const AxisPlacement whole = AxisPlacement::replicated(), parts = AxisPlacement::sharded(shape.wholes[0]);
    const CommKind kind = op.exchange()->kind;
    const AxisPlacement from = kind == CommKind::all_gather ? parts : AxisPlacement::partial();
    const AxisPlacement to = kind == CommKind::reduce_scatter ? parts : whole;
    const Id before = op.operands.front(), after = op.operands.back();
    if (now(before) != from)
      refuse(op, "'", program_.value(before).name, "' is ", to_text(now(before)), " but must be ",
             to_text(from), " to be exchanged");
    if (twins_.count(before) != 0)
      refuse(op, "what all ranks add alike to '", program_.value(before).name,
             "' lies elsewhere; leave the exchange out, it follows from how the value lies");
    if (before == after) {
      now_[after] = to;
      summed_.insert(after);
    } else {
      settle(after, to);
    }
  }

  // How an operand lies when the op is split along that dimension.
  AxisPlacement under(const std::optional<Name>& split, Id id, bool summand) const {
    if (split && has_dim(program_.value(id), *split)) return AxisPlacement::sharded(*split);
    return summand ? AxisPlacement::partial() : AxisPlacement::replicated();
  }

  // A partial sum that must be summed anyway is cheaper to get in parts than whole.
  std::optional<Name> choose_split(const Op& op, const OpShape& shape) const {
    for (const Name& dim : dims_) {
      if (lists(shape.wholes, dim)) continue;
      for (std::size_t i = 0; i < op.operands.size(); ++i) {
        const Id id = op.operands[i];
        if (id == none) continue;
        const Value& value = program_.value(id);
        if (value.role == Role::activation && op.access(i) == Access::write) continue;
        if (now(id) == AxisPlacement::sharded(dim)) return dim;
        if (value.role == Role::activation && now(id).is_partial() && has_dim(value, dim)) return dim;
      }
    }
    return std::nullopt;
  }

  static bool linear(const OpShape& shape, std::size_t i) { return (shape.linear >> i & 1u) != 0; }

  // An op that is linear in some operands passes partial sums on if all of these are partial, alone, and no
  // other operand is split. What the host reads must be whole.
  bool passes_partial(const Op& op, const OpShape& shape) const {
    bool any = false;
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none) continue;
      if (op.access(i) == Access::write && program_.value(op.operands[i]).role == Role::staging) return false;
      if (op.access(i) != Access::read) continue;
      if (!linear(shape, i) && now(op.operands[i]).is_sharded()) return false;
      if (!linear(shape, i)) continue;
      if (!now(op.operands[i]).is_partial() || has_twin(op.operands[i])) return false;
      any = true;
    }
    return any;
  }

  static bool runs_per_microbatch(FunctionKind kind) {
    return kind == FunctionKind::forward || kind == FunctionKind::backward ||
           kind == FunctionKind::backward_weight;
  }

  // Operand i is read as `wanted`. `op` is a copy: the program grows.
  void need(const Op& op, Id id, std::size_t i, const AxisPlacement& wanted) {
    const Id operand = op.operands[i];
    const AxisPlacement have = now(operand);
    if (have == wanted && !has_twin(operand)) return;
    const Role role = program_.value(operand).role;
    if (role == Role::gradient || role == Role::runtime || role == Role::state) {
      if (role == Role::runtime && runs_per_microbatch(op.function))
        refuse(op, "operand '", op.def->operands[i].name, "' ('", program_.value(operand).name, "') is ",
               to_text(have), " that goes on growing; it is whole at the end of the step, in 'finish'");
      if (!have.is_partial() || !wanted.is_replicated() || role == Role::state)
        refuse(op, "operand '", op.def->operands[i].name, "' ('", program_.value(operand).name, "') is ",
               has_twin(operand) ? "a sum of which every rank has counted a part alike" : to_text(have),
               " but is needed ", to_text(wanted));
      sum_in_place(operand, op, id);
      return;
    }
    const Id changed = converted(operand, wanted, op.segment, op.function, id);
    program_.replace_operand(id, i, changed);
  }

  // ------------------------------------------------------------- exchanges

  void sum_in_place(Id id, const Op& op, Id before) {
    if (program_.value(id).role == Role::gradient)
      sum_gradient(id);
    else
      add_sum(op.segment, op.function, id, before);
    summed_.insert(id);
    now_[id] = AxisPlacement::replicated();
    if (const auto twin = twins_.find(id); twin != twins_.end()) {
      // What every rank had counted alike comes on top.
      program_.add_op(op.segment, op.function, Part::input, "accumulate", {twin->second, id}, {}, before);
      twins_.erase(twin);
    }
  }

  void add_sum(Id segment, FunctionKind function, Id id, Id before) {
    const AttrValue axis = axis_attr(axis_);
    program_.add_op(segment, function, Part::input, "all_reduce_update", {id}, std::span(&axis, 1), before);
  }

  // In a function of its own, which may run under backward. Where it travels in another type than it is kept
  // in, all casts come first and all casts back last, so that it is one exchange.
  void sum_gradient(Id id) {
    const Id segment = program_.value(id).segment;
    const DType kept = program_.value(id).dtype, travels = program_.precision().reduce;
    if (kept == travels) {
      add_sum(segment, FunctionKind::reduce, id, none);
      return;
    }
    const auto casts_back = [&](const Op& op) {
      return op.def->converts && program_.value(op.operands.back()).role == Role::gradient;
    };
    const Id known =
        first_in_reduce(segment, [&](const Op& op) { return op.def->converts && op.operands.front() == id; });
    if (known != none) {
      // It has been summed over another axis: the sum of those sums is what comes back.
      const Id narrow = program_.op(known).operands.back();
      add_sum(segment, FunctionKind::reduce, narrow, first_in_reduce(segment, casts_back));
      now_[narrow] = AxisPlacement::replicated();
      return;
    }
    const Id exchange = first_in_reduce(segment, [](const Op& op) { return op.exchange() != nullptr; });
    const Id narrow = program_.add_op_creating(segment, FunctionKind::reduce, Part::input, "cast",
                                               std::span(&id, 1), cast_attrs(kept, travels), exchange)[0];
    program_.value(narrow).placement = program_.value(id).placement;
    add_sum(segment, FunctionKind::reduce, narrow, first_in_reduce(segment, casts_back));
    program_.add_op(segment, FunctionKind::reduce, Part::input, "cast", {narrow, id},
                    cast_attrs(travels, kept));
  }

  template <class Wanted>
  Id first_in_reduce(Id segment, Wanted&& wanted) const {
    for (Id op : program_.segment(segment).ops(FunctionKind::reduce))
      if (wanted(program_.op(op))) return op;
    return none;
  }

  // The same value lying as wanted; exchanged once a function.
  Id converted(Id id, const AxisPlacement& wanted, Id segment, FunctionKind function, Id before) {
    if (now(id) == wanted) return id;
    for (const auto& [from, to] : exchanged_)
      if (from == id && now(to) == wanted) return to;
    place_ = {segment, function, before};
    const Id result = exchange(id, wanted);
    exchanged_.push_back({id, result});
    return result;
  }

  Id exchange(Id id, const AxisPlacement& wanted) {
    const AxisPlacement have = now(id);
    if (wanted.is_sharded()) check_divides(program_.value(id), wanted.dim);
    if (have.is_partial() && wanted.is_replicated()) return sum(id);
    if (have.is_partial())
      return along(along(id, "block", wanted.dim, have), "reduce_scatter", wanted.dim, wanted);
    if (have.is_sharded() && wanted.is_replicated())
      return along(along(id, "all_gather", have.dim, wanted), "unblock", have.dim, wanted);
    if (have.is_sharded()) return exchange(exchange(id, AxisPlacement::replicated()), wanted);
    if (wanted.is_sharded()) return along(id, "slice", wanted.dim, wanted);
    return counted_once(id);
  }

  // An op whose result lies on this axis as said, and on the others as its operand does.
  Id insert(Id id, const char* kind, std::span<const Id> operands, std::span<const AttrValue> attrs,
            const AxisPlacement& result) {
    const Id made = program_.add_op_creating(place_.segment, place_.function, Part::input, kind, operands,
                                             attrs, place_.before)[0];
    program_.value(made).placement = program_.value(id).placement;
    settle(made, result);
    return made;
  }

  Id sum(Id id) {
    const AttrValue axis = axis_attr(axis_);
    return insert(id, "all_reduce", std::span(&id, 1), std::span(&axis, 1), AxisPlacement::replicated());
  }

  Id counted_once(Id id) {
    const Id operands[] = {id, add_first_of_axis(program_, axis_name())};
    return insert(id, "gate", operands, {}, AxisPlacement::partial());
  }

  // The same for exchanges along a dimension; blocks have one dimension more, in front.
  Id along(Id id, const char* kind, const Name& dim, const AxisPlacement& result) {
    const std::vector<Dim>& dims = program_.value(id).dims;
    const auto found = std::find_if(dims.begin(), dims.end(), [&](const Dim& d) { return d.name == dim; });
    PRUN_CHECK(found != dims.end(), kind, " along '", dim.view(), "'");
    const bool blocks = dims.front().name == Name("parts");
    const AttrValue attrs[] = {axis_attr(axis_),
                               {"dim", static_cast<double>(found - dims.begin() - blocks)},
                               {"parts", static_cast<double>(extent())}};
    return insert(id, kind, std::span(&id, 1), attrs, result);
  }

  // ------------------------------------------------------------- results

  // Operand i is written or accumulated into, as `placement`.
  void produce(const Op& op, Id op_id, std::size_t i, const AxisPlacement& placement) {
    const Id id = op.operands[i];
    const Role role = program_.value(id).role;
    if (op.def->clears) {
      cleared_.insert(id);
    } else if (role == Role::activation) {
      settle(id, placement);
    } else if (placement.is_sharded() || now(id).is_sharded()) {
      if (now(id) != placement)
        refuse(op, "'", program_.value(id).name, "' is ", to_text(now(id)), " but would be written ",
               to_text(placement));
    } else if (op.access(i) == Access::write || role == Role::runtime || role == Role::gradient) {
      accumulate(op, op_id, i, placement);
    } else if (placement.is_partial()) {
      refuse(op, "'", program_.value(id).name, "' would become a partial sum");
    }
  }

  // What every rank adds alike and what each adds of its own must not meet in one sum: the former goes to a
  // twin, which is added when the sum is complete. Whoever reads the sum reads both.
  void accumulate(const Op& op, Id op_id, std::size_t i, const AxisPlacement& placement) {
    const Id id = op.operands[i];
    const bool cleared = cleared_.erase(id) != 0;
    if (cleared || op.access(i) == Access::write || now(id) == placement) {
      settle(id, placement);
      return;
    }
    if (program_.value(id).role != Role::runtime)
      refuse(op, "adds ", to_text(placement), " to '", program_.value(id).name, "', which is ",
             to_text(now(id)), "; untie the parameter, or split other dimensions over this axis");
    if (placement.is_partial()) {
      if (summed_.count(id) != 0)
        refuse(op, "adds a partial sum to '", program_.value(id).name, "', which has been read whole before");
      // So far it holds what is alike everywhere: that becomes the twin's.
      redirect(id, twin_of(id));
      settle(id, placement);
    } else {
      program_.replace_operand(op_id, i, twin_of(id));
    }
  }

  Id twin_of(Id id) {
    if (const auto known = twins_.find(id); known != twins_.end()) return known->second;
    const Id step = program_.step_segment();
    Value like = program_.value(id);
    like.name += "@" + axis_name();
    like.placement.clear();
    const Id twin = program_.add_value(std::move(like));
    program_.add_op(step, FunctionKind::begin, Part::input, "zero", {twin}, {});
    settle(twin, AxisPlacement::replicated());
    return twins_[id] = twin;
  }

  bool has_twin(Id id) const { return twins_.count(id) != 0; }

  // Each of the two holds a summand of the axis before this one.
  void sum_twin_alike(const Op& op, Id id) {
    if (const auto twin = twins_.find(op.operands[0]); twin != twins_.end())
      program_.add_copy(id, op.function, {twin->second}, id);
  }

  // Everything that has been added to `id` so far goes to `twin` instead, and whoever read it reads that.
  void redirect(Id id, Id twin) {
    for (Id op_id : visited_)
      for (std::size_t i = 0; i < program_.op(op_id).operands.size(); ++i) {
        const Op& op = program_.op(op_id);
        if (op.operands[i] != id || op.def->clears) continue;
        if (op.access(i) == Access::write)
          refuse(op, "writes '", program_.value(id).name,
                 "', to which partial sums are added later; clear it and add to it instead");
        program_.replace_operand(op_id, i, twin);
      }
  }

  Program& program_;
  AxisId axis_;
  std::vector<Name> dims_;  // to lie on this axis, first come first
  std::map<Id, AxisPlacement> now_;
  std::set<Id> cleared_;
  std::set<Id> summed_;  // in place: nothing may be added to one rank's copy alone
  AxisPlacement handed_on_;
  struct {
    Id segment = none;
    FunctionKind function = FunctionKind::forward;
    Id before = none;
  } place_;                                   // where exchanges are inserted
  std::map<Id, Id> twins_;                    // runtime sums: the part that is alike on every rank
  std::vector<Id> visited_;                   // ops
  std::vector<std::pair<Id, Id>> exchanged_;  // in this function: value, the same lying otherwise
};

}  // namespace

void place_on_mesh(Program& program) {
  split_ops(program);
  for (AxisId axis = 0; axis < program.mesh().size(); ++axis)
    if (program.mesh().extent(axis) > 1) AxisPass(program, axis).run();
  exchange_directly(program);
}

}  // namespace prun
