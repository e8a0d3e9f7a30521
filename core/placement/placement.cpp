#include "placement/placement.hpp"

#include <algorithm>
#include <array>
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
    for (const bool ops : {false, true})
      for (const Split& split : program.requests().splits)
        if (split.axis == axis && (split.scope == SplitScope::ops) == ops) dims_.push_back(split);
  }

  void run() {
    place_what_stays();
    note_swaps();
    const Id step = program_.step_segment(), end = program_.segment_count();
    visit(step, FunctionKind::load);
    visit(step, FunctionKind::begin);
    for (Id s = step + 1; s < end; ++s) visit(s, FunctionKind::zero);
    for (Id s = step + 1; s < end; ++s) visit_forward(s);
    for (Id s = end; s-- > step + 1;) visit_backward(s);
    check_copies();
    for (FunctionKind kind : {FunctionKind::reduce, FunctionKind::norm})
      for (Id s = step + 1; s < end; ++s) visit(s, kind);
    visit(step, FunctionKind::finish);
    for (FunctionKind kind : {FunctionKind::diagnose, FunctionKind::update})
      for (Id s = step + 1; s < end; ++s) visit(s, kind);
    visit(step, FunctionKind::report);
  }

 private:
  std::string axis_name() const { return program_.mesh().name(axis_); }
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

  // What ops of forward would rather split than what was asked for first: what stays lies as they use it.
  std::vector<Name> preferred() const {
    std::vector<Name> list;
    for (Id segment = 0; dims_.size() > 1 && segment < program_.segment_count(); ++segment)
      for (const Id id : program_.segment(segment).ops(FunctionKind::forward)) {
        OpShape shape = program_.shape(program_.op(id));
        raise(program_.op(id).def->rule(&shape));
        for (const Name& dim : shape.preferred)
          if (!dim.empty()) list.push_back(dim);
      }
    return list;
  }

  // Values that exist before a step. State of another shape than its parameter's lies in parts only where the
  // parameter does: the dimensions that it lacks may be those.
  void place_what_stays() {
    const std::vector<Split> order = by_preference();
    std::map<Id, Id> parameters;  // of such state
    for (Id id = 0; id < program_.value_count(); ++id)
      for (const Id state : program_.value(id).states)
        if (program_.value(state).own_shape) parameters[state] = id;
    for (Id id = 0; id < program_.value_count(); ++id) {
      const Value& value = program_.value(id);
      if (value.role == Role::activation || value.role == Role::runtime) continue;
      const auto parameter = parameters.find(id);
      AxisPlacement placement =
          resting(parameter == parameters.end() ? value : program_.value(parameter->second), order);
      if (placement.is_sharded() && !has_dim(value, placement.dim)) placement = AxisPlacement::replicated();
      if (counts_over_axis(value)) placement = AxisPlacement::partial();
      settle(id, placement);
    }
  }

  // The splits that were asked for, in front those of dimensions that ops of forward prefer.
  std::vector<Split> by_preference() const {
    std::vector<Split> order = dims_;
    const std::vector<Name> first = preferred();
    std::stable_partition(order.begin(), order.end(), [&](const Split& split) {
      return std::find(first.begin(), first.end(), split.dim) != first.end();
    });
    return order;
  }

  // Sharded on the first dimension of `order` that the value has. A microbatch's inputs come in parts only if
  // their dimension is the first that was asked for everywhere: what needs weights in parts may need them
  // whole.
  AxisPlacement resting(const Value& value, const std::vector<Split>& order) const {
    const bool input = value.role == Role::input || value.role == Role::staging;
    for (const Split& split : input ? dims_ : order) {
      if (split.scope == SplitScope::ops || (input && split.scope != SplitScope::everywhere)) continue;
      if (has_dim(value, split.dim)) return AxisPlacement::sharded(split.dim);
      if (input) break;
    }
    return AxisPlacement::replicated();
  }

  bool counts_over_axis(const Value& value) const {
    const auto first = std::find_if(dims_.begin(), dims_.end(),
                                    [](const Split& split) { return split.scope == SplitScope::everywhere; });
    return std::any_of(value.counted.begin(), value.counted.end(), [&](const Name& name) {
      return name == Name("*") || (first != dims_.end() && first->dim == name);
    });
  }

  // An all-to-all over an axis before this one needs dimensions whole here: its blocks are better made of
  // what is whole, and put together as they lie.
  void note_swaps() {
    for (Id segment = 0; segment < program_.segment_count(); ++segment)
      for (const std::vector<Id>& function : program_.segment(segment).functions)
        for (const Id id : function) {
          const Op& op = program_.op(id);
          if (!op.exchange() || op.exchange()->kind != CommKind::all_to_all) continue;
          OpShape shape = program_.shape(op);
          raise(op.def->rule(&shape));
          for (const Id blocks : {op.operands.front(), op.operands.back()})
            swapped_blocks_[blocks] = {shape.wholes[0], shape.wholes[1]};
        }
  }

  // Whether it lies where only ops that want another dimension whole have it.
  bool is_away(Id id) const {
    return now(id).is_sharded() && std::any_of(dims_.begin(), dims_.end(), [&](const Split& split) {
             return split.scope == SplitScope::ops && split.dim == now(id).dim;
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
    if (!now(id).is_incomplete() && !is_away(id)) return now(id);
    for (const Split& split : dims_)
      if (has_dim(program_.value(id), split.dim)) return AxisPlacement::sharded(split.dim);
    return AxisPlacement::replicated();
  }

  void visit(Id segment, FunctionKind kind) {
    exchanged_.clear();
    const std::vector<Id> ops = program_.segment(segment).ops(kind);
    for (Id op : ops) place(op);
  }

  // The gradients of a parameter that two stages hold are added up before either is summed over this axis.
  void check_copies() const {
    for (const Id id : program_.parameters()) {
      const Value& copy = program_.value(id);
      if (copy.copy_of == none || copy.gradient == none) continue;
      const Value& original = program_.value(copy.copy_of);
      const AxisPlacement here = now(copy.gradient), there = now(original.gradient);
      if (here != there)
        throw_error(ErrorCode::unsupported, "axis '", axis_name(), "': two stages hold '", original.name,
                    "', and its gradient is ", to_text(there), " in segment '",
                    program_.segment(original.segment).name, "' and ", to_text(here), " in segment '",
                    program_.segment(copy.segment).name,
                    "'; untie the parameter, or split other dimensions over this axis");
    }
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
    for (const Id blocks : {op.operands.front(), op.operands.back()})
      if (const auto swap = swapped_blocks_.find(blocks); swap != swapped_blocks_.end())
        for (const Name& dim : swap->second) shape.whole(dim);
    AxisPlacement left = passed_on(op, shape);
    const std::optional<Name> split = left.is_incomplete() ? std::nullopt : choose_split(op, shape);
    if (split) left = left_by(op, shape, *split);
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none || op.access(i) != Access::read) continue;
      // What is linear and added to a partial sum must count once.
      const bool joins = left.is_incomplete() && passes(shape, left, i);
      need(op, id, i, under(split, op.operands[i], joins ? left : AxisPlacement::replicated()));
    }
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && op.access(i) != Access::read)
        produce(op, id, i, under(split, op.operands[i], left), passes(shape, AxisPlacement::maximum(), i));
    visited_.push_back(id);
  }

  // What an op that is split along a dimension makes of results that lack it.
  AxisPlacement left_by(const Op& op, const OpShape& shape, const Name& split) const {
    const bool sums = lists(shape.sums, split), maxes = lists(shape.maxes, split);
    if (sums && maxes)
      refuse(op, "its rule marks '", split.view(),
             "' as summed over and as what the largest is taken of; make two ops of it");
    return sums ? AxisPlacement::partial() : maxes ? AxisPlacement::maximum() : AxisPlacement::replicated();
  }

  // Stands in the program already: it must find what it changes.
  void meet_exchange(const Op& op, const OpShape& shape) {
    const AxisPlacement whole = AxisPlacement::replicated(), parts = AxisPlacement::sharded(shape.wholes[0]);
    const CommKind kind = op.exchange()->kind;
    const Id before = op.operands.front(), after = op.operands.back();
    const bool swaps = kind == CommKind::all_to_all, largest = op.exchange()->reduction == Reduction::max;
    if (swaps && shape.wholes[1].empty())
      refuse(op,
             "its rule does not mark both the dimension that was in parts and the one that comes to be as "
             "whole (s.whole)");
    // An op may have called what it found largest a sum that is not one.
    const AxisPlacement from = kind == CommKind::all_gather || swaps ? parts
                               : largest && now(before).is_maximum() ? AxisPlacement::maximum()
                                                                     : AxisPlacement::partial();
    const AxisPlacement to = swaps                              ? AxisPlacement::sharded(shape.wholes[1])
                             : kind == CommKind::reduce_scatter ? parts
                                                                : whole;
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

  // How an operand lies when the op is split along that dimension; one that lacks it, as said.
  AxisPlacement under(const std::optional<Name>& split, Id id, const AxisPlacement& else_where) const {
    return split && has_dim(program_.value(id), *split) ? AxisPlacement::sharded(*split) : else_where;
  }

  // What the op itself puts first, then what was asked for.
  std::optional<Name> choose_split(const Op& op, const OpShape& shape) const {
    for (const Name& dim : shape.preferred)
      if (is_asked(dim) && !lists(shape.wholes, dim) && any_reads(op, [&](Id id) { return has(id, dim); }))
        return dim;
    for (const Split& split : dims_)
      if (!lists(shape.wholes, split.dim) && can_be_had(op, shape, split)) return split.dim;
    return std::nullopt;
  }

  bool is_asked(const Name& dim) const {
    return std::any_of(dims_.begin(), dims_.end(), [&](const Split& split) { return split.dim == dim; });
  }
  bool has(Id id, const Name& dim) const { return has_dim(program_.value(id), dim); }

  // It says whether a state that every rank keeps whole has that dimension: no rank may change a part of it
  // alone.
  bool has_whole_state(const Op& op, const Name& dim) const {
    return std::any_of(op.operands.begin(), op.operands.end(), [&](Id id) {
      return id != none && program_.value(id).role == Role::state && has(id, dim) && now(id).is_replicated();
    });
  }

  // Whether it is true of an operand that is there before the op runs.
  template <class Is>
  bool any_reads(const Op& op, Is&& is) const {
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      const Id id = op.operands[i];
      const bool made =
          id != none && program_.value(id).role == Role::activation && op.access(i) == Access::write;
      if (id != none && !made && is(id)) return true;
    }
    return false;
  }

  // A partial sum that must be summed anyway is cheaper to get in parts than whole. What one op has had along
  // another dimension comes back here; in turn, what the op wants whole is exchanged for what only ops have.
  bool can_be_had(const Op& op, const OpShape& shape, const Split& split) const {
    if (has_whole_state(op, split.dim)) return false;
    return any_reads(op, [&](Id id) {
      if (now(id) == AxisPlacement::sharded(split.dim)) return true;
      if (program_.value(id).role != Role::activation || !has(id, split.dim)) return false;
      if (now(id).is_incomplete()) return true;
      if (!now(id).is_sharded()) return false;
      return split.scope == SplitScope::ops ? lists(shape.wholes, now(id).dim) : is_away(id);
    });
  }

  // Whether what the ranks have of operand i may be put together behind the op.
  static bool passes(const OpShape& shape, const AxisPlacement& incomplete, std::size_t i) {
    return ((incomplete.is_maximum() ? shape.monotone : shape.linear) >> i & 1u) != 0;
  }

  // Partial sums, or maxima, that the op hands on as they are; else replicated.
  AxisPlacement passed_on(const Op& op, const OpShape& shape) const {
    for (const AxisPlacement& one : {AxisPlacement::partial(), AxisPlacement::maximum()})
      if (passes_on(op, shape, one)) return one;
    return AxisPlacement::replicated();
  }

  // An op that is linear in some operands passes partial sums on if all of these are partial, alone, and no
  // other operand is split. What the host reads must be whole. A maximum that is the same everywhere does not
  // hinder others.
  bool passes_on(const Op& op, const OpShape& shape, const AxisPlacement& one) const {
    bool any = false;
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none) continue;
      if (op.access(i) == Access::write && program_.value(op.operands[i]).role == Role::staging) return false;
      if (op.access(i) != Access::read) continue;
      const AxisPlacement lies = now(op.operands[i]);
      if (!passes(shape, one, i) && lies.is_sharded()) return false;
      if (!passes(shape, one, i) || (one.is_maximum() && lies.is_replicated())) continue;
      if (lies != one || has_twin(op.operands[i])) return false;
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
    if (serves(have, wanted) && !has_twin(operand)) return;
    const Role role = program_.value(operand).role;
    if (role == Role::gradient || role == Role::runtime || role == Role::state) {
      if (role == Role::runtime && runs_per_microbatch(op.function))
        refuse(op, "operand '", op.def->operands[i].name, "' ('", program_.value(operand).name, "') is ",
               to_text(have), " that goes on growing; it is whole at the end of the step, in 'finish'");
      if (!have.is_incomplete() || !wanted.is_replicated() || role == Role::state)
        refuse(op, "operand '", op.def->operands[i].name, "' ('", program_.value(operand).name, "') is ",
               has_twin(operand) ? "a sum of which every rank has counted a part alike" : to_text(have),
               " but is needed ", to_text(wanted));
      sum_in_place(operand, op, id);
      return;
    }
    const Id changed = converted(operand, wanted, op.segment, op.function, id);
    program_.replace_operand(id, i, changed);
  }

  // What is the same everywhere is the largest that any rank has.
  static bool serves(const AxisPlacement& have, const AxisPlacement& wanted) {
    return have == wanted || (have.is_replicated() && wanted.is_maximum());
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
    const char* const kind = now(id).is_maximum() ? "all_reduce_max_update" : "all_reduce_update";
    program_.add_op(segment, function, Part::input, kind, {id}, std::span(&axis, 1), before);
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

  // The same value lying as wanted; exchanged once a function. What lies along another dimension is as large
  // there, so what forward has exchanged so is kept for backward.
  Id converted(Id id, const AxisPlacement& wanted, Id segment, FunctionKind function, Id before) {
    if (serves(now(id), wanted)) return id;
    for (const std::vector<std::pair<Id, Id>>& list : {exchanged_, swapped_[segment]})
      for (const auto& [from, to] : list)
        if (from == id && now(to) == wanted) return to;
    place_ = {segment, function, before};
    const bool swaps = now(id).is_sharded() && wanted.is_sharded();
    const Id result = exchange(id, wanted);
    exchanged_.push_back({id, result});
    if (swaps && function == FunctionKind::forward) swapped_[segment].push_back({id, result});
    return result;
  }

  Id exchange(Id id, const AxisPlacement& wanted) {
    const AxisPlacement have = now(id);
    if (wanted.is_sharded()) check_divides(program_.value(id), wanted.dim);
    if (serves(have, wanted)) return id;
    if (have.is_incomplete() && wanted.is_sharded()) return reduced_in_parts(id, wanted);
    if (have.is_sharded() && wanted.is_sharded()) return swapped(id, wanted);
    if (have.is_sharded())
      return exchange(along(along(id, "all_gather", have.dim, AxisPlacement::replicated()), "unblock",
                            have.dim, AxisPlacement::replicated()),
                      wanted);
    if (have.is_incomplete()) return exchange(reduced(id), wanted);
    if (wanted.is_sharded()) return along(id, "slice", wanted.dim, wanted);
    return counted_once(id);
  }

  Id reduced_in_parts(Id id, const AxisPlacement& wanted) {
    const char* const kind = now(id).is_maximum() ? "reduce_scatter_max" : "reduce_scatter";
    return along(along(id, "block", wanted.dim, now(id)), kind, wanted.dim, wanted);
  }

  // From the dimension that it lies along to another: each rank has blocks of the latter, one for each rank,
  // and gets blocks of the former.
  Id swapped(Id id, const AxisPlacement& wanted) {
    const Name from = now(id).dim;
    const Id blocks = along(id, "block", wanted.dim, now(id));
    const auto number = [&](const Name& dim) { return static_cast<double>(place_of(id, dim)); };
    const AttrValue attrs[] = {axis_attr(axis_),
                               {"dim", number(from)},
                               {"parts", static_cast<double>(extent())},
                               {"to", number(wanted.dim)}};
    return along(insert(blocks, "all_to_all", std::span(&blocks, 1), attrs, wanted), "unblock", from, wanted);
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

  Id reduced(Id id) {
    const AttrValue axis = axis_attr(axis_);
    return insert(id, now(id).is_maximum() ? "all_reduce_max" : "all_reduce", std::span(&id, 1),
                  std::span(&axis, 1), AxisPlacement::replicated());
  }

  Id counted_once(Id id) {
    const Id operands[] = {id, add_first_of_axis(program_, axis_name())};
    return insert(id, "gate", operands, {}, AxisPlacement::partial());
  }

  // The same for exchanges along a dimension; blocks have one dimension more, in front.
  Id along(Id id, const char* kind, const Name& dim, const AxisPlacement& result) {
    const std::string_view from = kind;
    const bool blocks = from == "unblock" || from.starts_with("reduce_scatter");
    const AttrValue attrs[] = {axis_attr(axis_),
                               {"dim", static_cast<double>(place_of(id, dim) - blocks)},
                               {"parts", static_cast<double>(extent())}};
    return insert(id, kind, std::span(&id, 1), attrs, result);
  }

  std::ptrdiff_t place_of(Id id, const Name& dim) const {
    const std::vector<Dim>& dims = program_.value(id).dims;
    const auto found = std::find_if(dims.begin(), dims.end(), [&](const Dim& d) { return d.name == dim; });
    PRUN_CHECK(found != dims.end(), "'", program_.value(id).name, "' lacks '", dim.view(), "'");
    return found - dims.begin();
  }

  // ------------------------------------------------------------- results

  // Operand i is written or accumulated into, as `placement`; `folds`: the largest of what is there and what
  // comes.
  void produce(const Op& op, Id op_id, std::size_t i, const AxisPlacement& placement, bool folds) {
    const Id id = op.operands[i];
    const Role role = program_.value(id).role;
    if (role != Role::activation) check_joins(op, i, placement);
    if (op.def->clears) {
      cleared_.insert(id);
    } else if (role == Role::activation) {
      settle(id, placement);
    } else if (placement.is_sharded() || now(id).is_sharded()) {
      if (now(id) != placement)
        refuse(op, "'", program_.value(id).name, "' is ", to_text(now(id)), " but would be written ",
               to_text(placement));
    } else if (op.access(i) == Access::write || role == Role::runtime || role == Role::gradient) {
      if (placement.is_maximum() || (now(id).is_maximum() && cleared_.count(id) == 0))
        fold(op, i, placement, folds);
      else
        accumulate(op, op_id, i, placement);
    } else if (placement.is_incomplete()) {
      refuse(op, "'", program_.value(id).name, "' would become ", to_text(placement));
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

  // Sums and maxima do not go together.
  void check_joins(const Op& op, std::size_t i, const AxisPlacement& placement) const {
    const Value& value = program_.value(op.operands[i]);
    const bool begins =
        op.def->clears || op.access(i) == Access::write || cleared_.count(op.operands[i]) != 0;
    const AxisPlacement lies = begins ? AxisPlacement::replicated() : now(op.operands[i]);
    const bool a_sum = value.role == Role::gradient || lies.is_partial();
    if ((placement.is_maximum() && a_sum) || (placement.is_partial() && lies.is_maximum()))
      refuse(op, "adds ", to_text(placement), " to '", value.name, "', which is ",
             lies.is_maximum() ? to_text(lies) : "a sum");
  }

  // The largest of what all ranks have is the same, whether some of it is alike on all of them or not.
  void fold(const Op& op, std::size_t i, const AxisPlacement& placement, bool folds) {
    const Id id = op.operands[i];
    cleared_.erase(id);
    if (op.access(i) == Access::write) {
      settle(id, placement);
      return;
    }
    if (!folds || has_twin(id))
      refuse(
          op, "changes '", program_.value(id).name, "', a partial maximum, and ",
          has_twin(id) ? "a part of it is a sum" : "its rule does not say that maxima pass (pass_maximum)");
    settle(id, AxisPlacement::maximum());
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
  std::vector<Split> dims_;  // to lie on this axis, first come first; those of ops alone at last
  std::map<Id, AxisPlacement> now_;
  std::set<Id> cleared_;
  std::set<Id> summed_;  // in place: nothing may be added to one rank's copy alone
  AxisPlacement handed_on_;
  struct {
    Id segment = none;
    FunctionKind function = FunctionKind::forward;
    Id before = none;
  } place_;                                           // where exchanges are inserted
  std::map<Id, Id> twins_;                            // runtime sums: the part that is alike on every rank
  std::vector<Id> visited_;                           // ops
  std::vector<std::pair<Id, Id>> exchanged_;          // in this function: value, the same lying otherwise
  std::map<Id, std::array<Name, 2>> swapped_blocks_;  // of exchanges over axes before this one
  std::map<Id, std::vector<std::pair<Id, Id>>>
      swapped_;  // likewise by a segment's forward, along another dimension
};

}  // namespace

void place_on_mesh(Program& program) {
  split_ops(program);
  for (AxisId axis = 0; axis < program.mesh().size(); ++axis)
    if (program.mesh().extent(axis) > 1) AxisPass(program, axis).run();
  exchange_directly(program);
}

}  // namespace prun
