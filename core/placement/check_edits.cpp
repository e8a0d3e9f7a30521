// Example: before `reduce`, a gradient is a partial sum on each rank of a data-parallel axis. Squaring it on
// each rank does not give parts of the squared gradient, so an op that squares it is refused unless its
// result is declared `varying`. A cast is linear: its result is partial too. An all_reduce before the op
// completes the gradient; so does an op that overwrites all of it with replicated numbers.
//
// The walk visits functions in the order of a step, because values are completed in place: gradients in
// `reduce`, tallies in `finish`. It checks edited ops and, after backward, all ops that touch their results.
#include "placement/check_edits.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "ops/base_ops.hpp"
#include "placement/axis_sums.hpp"

namespace prun {
namespace {

constexpr FunctionKind before_forward[] = {FunctionKind::load, FunctionKind::begin, FunctionKind::zero,
                                           FunctionKind::gather, FunctionKind::clear};
constexpr FunctionKind behind_backward[] = {
    FunctionKind::tie,      FunctionKind::reduce,   FunctionKind::norm,   FunctionKind::speculate,
    FunctionKind::finish,   FunctionKind::diagnose, FunctionKind::update, FunctionKind::settle,
    FunctionKind::periodic, FunctionKind::renew,    FunctionKind::report};

class AxisWalk {
 public:
  // See EditCheck::run() for `collectives`.
  AxisWalk(Program& program, AxisId axis, bool collectives)
      : program_(program),
        axis_(program, axis),
        sums_(axis_),
        choice_(axis_, sums_),
        edits_(program.edits()),
        collectives_(collectives) {}

  void run() {
    const Id end = program_.segment_count();
    for (const FunctionKind kind : before_forward)
      for (Id s = 0; s < end; ++s) visit(s, kind);
    for (Id s = 0; s < end; ++s) visit(s, FunctionKind::forward);
    for (Id s = end; s-- > 0;)
      for (const FunctionKind kind : backward_functions) visit(s, kind);
    for (const FunctionKind kind : behind_backward)
      for (Id s = 0; s < end; ++s) visit(s, kind);
  }

 private:
  // How an op is placed on the axis.
  struct Passage {
    OpShape rule;
    std::optional<Name> split;                           // dimension along which it is split
    AxisPlacement passed = AxisPlacement::replicated();  // placement of results that lack that dimension
    bool is_apart = false;                               // results vary
  };

  void visit(Id segment, FunctionKind kind) {
    const std::vector<Id> ops = program_.segment(segment).ops(kind);
    for (const Id id : ops) {
      const Op op = program_.op(id);
      if (program_.shares().contains(id) && shares_out(op)) continue;
      const bool edited = edits_.ops.contains(id) || program_.shares().contains(id),
                 checked = edited || touches(op);
      if (collectives_ && edited && follows_flat_values(op)) continue;
      if (op.exchange() && program_.axis_of(id) == axis_.axis())
        exchange(op, edited, checked);
      else if (checked && !op.exchanges_in_place() && !uses_flat_values(op))
        place(op, id);
      else if (!checked)
        follow(op);
    }
  }

  // Follows an op that no strategy edited if it completes a sum, such as the cast after an all-reduce in
  // bf16.
  void follow(const Op& op) {
    if (op.def->clears) return;
    bool alike = true;
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      alike &= op.operands[i] == none || op.access(i) == Access::write ||
               axis_.now(op.operands[i]).is_replicated();
    for (std::size_t i = 0; alike && i < op.operands.size(); ++i)
      if (op.operands[i] != none && op.access(i) == Access::write && axis_.now(op.operands[i]).is_partial() &&
          program_.value(op.operands[i]).role != Role::activation)
        axis_.change(op.operands[i], AxisPlacement::replicated());
  }

  // Returns true if an op after backward touches results of edited ops, whose placement may have changed.
  bool touches(const Op& op) const {
    return std::find(std::begin(behind_backward), std::end(behind_backward), op.function) !=
               std::end(behind_backward) &&
           std::any_of(op.operands.begin(), op.operands.end(),
                       [&](Id id) { return edits_.touched.contains(id); });
  }

  // An in-place collective completes its value. The placement of another one's result follows from its kind.
  void exchange(const Op& op, bool edited, bool checked) {
    const Id id = op.operands[0];
    const AxisPlacement lies = axis_.now(id);
    const CommKind kind = op.exchange()->kind;
    const bool sums = kind == CommKind::all_reduce || kind == CommKind::reduce_scatter;
    if (!sums_stages() && (edited || (checked && op.function == FunctionKind::reduce)) && sums &&
        op.exchange()->reduction == Reduction::sum && !lies.is_partial() && !lies.is_varying())
      refuse(op, 0, "would count it once per rank; leave the op out");
    if (op.exchanges_in_place()) {
      if (kind == CommKind::all_reduce) axis_.change(id, AxisPlacement::replicated());
      return;
    }
    if (edited) set(op, op.operands.size() - 1, exchanged(op));
  }

  // Returns true for the axis of a pipeline: its stages sum scalars and tied gradients that placement does
  // not call partial.
  bool sums_stages() const {
    const std::optional<PipelineRequest>& asked = program_.requests().pipeline;
    return asked && asked->axis == axis_.axis();
  }

  AxisPlacement exchanged(const Op& op) const {
    OpShape rule = program_.shape(op);
    raise(op.def->rule(&rule));
    const AxisPlacement parts = AxisPlacement::sharded(rule.wholes[0]), lies = axis_.now(op.operands[0]);
    switch (op.exchange()->kind) {
      case CommKind::all_reduce: return AxisPlacement::replicated();
      case CommKind::reduce_scatter: return parts;
      case CommKind::all_gather:
        if (lies != parts && !lies.is_varying())
          refuse(op, 0, "gathers parts of another dimension; name it by the attribute `dim`");
        return AxisPlacement::replicated();
      default:
        axis_.refuse(
            op,
            "a collective of that kind cannot be added after placement, because the placement of its "
            "result would be unknown; add it in an earlier phase, or use all_reduce, reduce_scatter "
            "or all_gather");
    }
  }

  void place(const Op& op, Id id) {
    if (op.def->clears)
      return axis_.change(op.operands.back(), program_.value(op.operands.back()).on(axis_.axis()));
    if (cuts(op, id)) return cut(op, id);
    const Passage passage = passage_of(op);
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (reads(op, i)) check_others(op, id, i, passage);
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && op.access(i) != Access::read) set(op, i, left(op, i, passage));
  }

  // Returns true if the op slices a replicated value along this axis.
  bool cuts(const Op& op, Id id) const {
    return op.is(base_ops::slice) && program_.axis_of(id) == axis_.axis();
  }
  void cut(const Op& op, Id id) {
    if (!axis_.now(op.operands[0]).is_replicated())
      refuse(op, 0, "takes a part of what all ranks have alike");
    const auto dim = static_cast<std::size_t>(program_.attr(id, "dim"));
    set(op, 1, AxisPlacement::sharded(program_.value(op.operands[0]).dims.at(dim).name));
  }

  // Finds the dimension along which the op is split, or the incomplete placement that it passes on.
  Passage passage_of(const Op& op) const {
    Passage found{program_.shape(op), {}, AxisPlacement::replicated(), false};
    raise(op.def->rule(&found.rule));
    const bool keeps_own = writes_own(op);
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none || op.access(i) == Access::write) continue;
      const AxisPlacement lies = axis_.now(op.operands[i]);
      found.is_apart |= lies.is_varying();
      if (lies.is_sharded()) {
        if (lists(found.rule.wholes, lies.dim)) refuse(op, i, "needs that dimension whole");
        if (found.split && *found.split != lies.dim)
          refuse(op, i, "has another operand split along another dimension");
        found.split = lies.dim;
      } else if (lies.is_incomplete() && reads(op, i)) {
        if (passes(found.rule, lies, i))
          found.passed = lies;
        else if (keeps_own)
          found.is_apart = true;
        else
          refuse(op, i, "needs it complete; add an all_reduce before it");
      }
    }
    for (std::size_t i = 0; i < op.operands.size() && !found.split; ++i)
      if (op.operands[i] != none && adds_to_sum(op, i, found.rule)) found.passed = AxisPlacement::partial();
    if (found.is_apart) found.passed = AxisPlacement::varying();
    return found;
  }

  // Returns true if all results vary: then the op may read operands as they are.
  bool writes_own(const Op& op) const {
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && op.access(i) != Access::read && !axis_.now(op.operands[i]).is_varying())
        return false;
    return true;
  }

  // Returns true if the op accumulates linearly into operand i, which is a partial sum.
  bool adds_to_sum(const Op& op, std::size_t i, const OpShape& rule) const {
    return op.access(i) == Access::update && rule.linear != 0 && axis_.now(op.operands[i]).is_partial();
  }

  // Checks a replicated operand. If the result is a partial sum, each rank must add its share only.
  void check_others(const Op& op, Id op_id, std::size_t i, const Passage& passage) {
    const Id id = op.operands[i];
    const AxisPlacement lies = axis_.now(id);
    if (passage.split && !lies.is_sharded() && has_dim(program_.value(id), *passage.split))
      refuse(op, i, "has another operand of which each rank has a part along that dimension");
    if (passage.passed.is_incomplete() && passage.split && !joins_sum(op, passage))
      refuse(op, i, "mixes a sharded operand with one that is not complete");
    if (passage.passed.is_partial() && passes(passage.rule, passage.passed, i) && lies.is_replicated())
      share_out(op, op_id, i);
  }

  // Returns true if the op sums over the dimension of an operand's shards, and its partial operands join that
  // sum: a linear op in which the bias of each rank is its share.
  bool joins_sum(const Op& op, const Passage& passage) const {
    if (!passage.passed.is_partial() || !lists(passage.rule.sums, *passage.split)) return false;
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (reads(op, i) && axis_.now(op.operands[i]).is_sharded() && passes(passage.rule, passage.passed, i))
        return true;
    return false;
  }

  // Returns true if the op scales a replicated value to each rank's share: its result's placement does not
  // follow from its operand.
  bool shares_out(const Op& op) const {
    return axis_.now(op.operands.back()).is_partial() && !axis_.now(op.operands.front()).is_partial();
  }
  void share_out(const Op& op, Id op_id, std::size_t i) {
    const AttrValue share{"factor", 1.0 / static_cast<double>(axis_.extent())};
    const Id whole = op.operands[i], made = program_.op_count();
    const Id summand = program_.add_op_creating(op.segment, op.function, op.part, base_ops::scale,
                                                std::span(&whole, 1), std::span(&share, 1), op_id)[0];
    // A gradient may be complete along other axes by now; the walks along them find out.
    program_.value(summand).placement = program_.value(whole).placement;
    complete_sums(program_.value(summand).placement);
    axis_.settle(summand, AxisPlacement::partial());
    program_.replace_operand(op_id, i, summand);
    program_.shares().insert(made);
  }

  AxisPlacement left(const Op& op, std::size_t i, const Passage& passage) const {
    if (!passage.split) return passage.passed;
    if (has_dim(program_.value(op.operands[i]), *passage.split))
      return AxisPlacement::sharded(*passage.split);
    return passage.is_apart ? AxisPlacement::varying() : choice_.left_by(op, passage.rule, *passage.split);
  }

  // Sets the placement of a result. New values and per-step scalars take any placement. An existing value
  // must already have it, with two exceptions: replicated numbers complete a partial sum, and a varying value
  // takes anything but shards.
  void set(const Op& op, std::size_t i, const AxisPlacement& placement) {
    const Id id = op.operands[i];
    const AxisPlacement lies = axis_.now(id);
    if (id >= edits_.first_value && op.access(i) == Access::write &&
        program_.value(id).role == Role::activation) {
      axis_.settle(id, placement);
    } else if (is_numbers_of_a_step(id) && op.access(i) == Access::write &&
               (lies.is_varying() || placement.is_varying())) {
      axis_.settle(id, placement);
    } else if (lies.is_varying() && !placement.is_sharded()) {
      return;
    } else if (lies.is_partial() && placement.is_replicated() && op.access(i) == Access::write &&
               program_.value(id).role != Role::activation) {
      axis_.change(id, placement);
    } else if (lies != placement) {
      axis_.refuse(op, "writes '", program_.value(id).name, "' as ", to_text(placement), ", which is ",
                   to_text(lies), " there");
    }
  }

  // Returns true if each step writes the value anew.
  bool is_numbers_of_a_step(Id id) const {
    const Role role = program_.value(id).role;
    return role == Role::runtime || role == Role::staging;
  }

  bool reads(const Op& op, std::size_t i) const {
    return op.operands[i] != none && op.access(i) == Access::read;
  }

  // Ops on flat buffers are left to the plan's proof, which knows what each byte holds.
  bool uses_flat_values(const Op& op) const {
    return std::any_of(op.operands.begin(), op.operands.end(),
                       [&](Id id) { return id != none && program_.value(id).bucket >= 0; });
  }

  // Returns true if the op uses flat buffers or results made of them in this phase.
  bool follows_flat_values(const Op& op) {
    if (!uses_flat_values(op) && std::none_of(op.operands.begin(), op.operands.end(),
                                              [&](Id id) { return made_of_flat_.contains(id); }))
      return false;
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && op.access(i) != Access::read && op.operands[i] >= edits_.first_value)
        made_of_flat_.insert(op.operands[i]);
    return true;
  }

  [[noreturn]] void refuse(const Op& op, std::size_t i, const char* why) const {
    const Id id = op.operands[i];
    axis_.refuse(op, "operand '", op.def->operands[i].name, "' ('", program_.value(id).name, "') is ",
                 to_text(axis_.now(id)), ", and the op ", why);
  }

  Program& program_;
  AxisState axis_;
  AxisSums sums_;
  OpChoice choice_;
  const Program::Edits& edits_;
  const bool collectives_;
  std::set<Id> made_of_flat_;
};

}  // namespace

// Refuses tallies declared after placement, which adds their sum over ranks.
void EditCheck::check_tallies() const {
  for (Id id = program_.edits().first_value; id < program_.value_count(); ++id)
    if (program_.value(id).tally)
      throw_error(ErrorCode::bad_input, "cannot declare tally '", program_.value(id).name,
                  "' after placement, which adds its sum over ranks; declare it in phase "
                  "model, shard or partition");
}

void EditCheck::run(bool collectives) const {
  if (program_.mesh().world() > 1) check_tallies();
  if (!program_.edits().fresh) return;
  for (std::size_t shares = program_.shares().size();;) {
    for (AxisId axis = 0; axis < program_.mesh().size(); ++axis)
      if (program_.mesh().extent(axis) > 1) AxisWalk(program_, axis, collectives).run();
    if (program_.shares().size() == shares) break;
    shares = program_.shares().size();  // an added op may change placements on axes visited before
  }
  // Later checks treat these collectives like those of the core.
  if (!collectives) program_.end_edits();
}

namespace {

bool changes(const Program& program, Id segment, std::initializer_list<FunctionKind> functions, Id value) {
  for (const FunctionKind function : functions)
    for (const Id id : program.segment(segment).ops(function)) {
      const Op& op = program.op(id);
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (op.operands[i] == value && op.access(i) != Access::read) return true;
    }
  return false;
}

class FlatCheck {
 public:
  FlatCheck(const Program& program, const FlatParameter& flat) : program_(program), flat_(flat) {}

  void run() {
    if (flat_.gradients != none) check_sums();
    const Id together = flat_.codes != none ? flat_.codes : flat_.parameters;
    if (!changes(program_, flat_.segment, {FunctionKind::gather, FunctionKind::update}, together))
      refuse("it is updated in shards, and no op of function 'gather' or 'update' gathers them");
  }

 private:
  // Follows the gradients through `reduce`. Quantized gradients are summed after an all-to-all.
  void check_sums() {
    for (const Id id : {flat_.gradients, flat_.own_gradients, flat_.own_sum})
      if (id != none) of_gradients_.insert(id);
    for (const Id id : program_.segment(flat_.segment).ops(FunctionKind::reduce)) {
      const Op& op = program_.op(id);
      if (std::none_of(op.operands.begin(), op.operands.end(),
                       [&](Id operand) { return of_gradients_.contains(operand); }))
        continue;
      follow(op);
      if (op.exchange()) note_sum(program_.axis_of(id));
    }
    if (!kept_) refuse("no op of function 'reduce' gives a rank the sum of its gradient's shard");
    check_is_summed(static_cast<AxisId>(flat_.ranks.number));
    for (const AxisInfo& axis : flat_.summed) check_is_summed(static_cast<AxisId>(axis.number));
  }

  void follow(const Op& op) {
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none || op.access(i) == Access::read) continue;
      of_gradients_.insert(op.operands[i]);
      if (op.operands[i] != flat_.own_gradients) continue;
      kept_ = true;
      if (flat_.shards_gradients && op.access(i) == Access::write)
        refuse("a microbatch's sum takes the place of those before; accumulate it into own_gradients");
    }
  }

  void note_sum(AxisId over) {
    for (const AxisId axis : axes_of(over))
      if (!summed_.insert(axis).second)
        refuse("its gradient is summed twice over axis '", program_.mesh().name(axis), "'");
  }

  void check_is_summed(AxisId over) const {
    for (const AxisId axis : axes_of(over))
      if (!summed_.contains(axis))
        refuse("its gradient is not summed over axis '", program_.mesh().name(axis),
               "' in function 'reduce'");
  }

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... lack) const {
    throw_error(ErrorCode::bad_input, "segment '", program_.segment(flat_.segment).name, "', parameter '",
                program_.value(*flat_.members.begin()).name, "': ", detail::concat(lack...), "; [",
                program_.requests().shards->asked_by,
                "] asked for shards, and writes their collectives in phase collectives");
  }

  const Program& program_;
  const FlatParameter& flat_;
  std::set<Id> of_gradients_;
  std::set<AxisId> summed_;
  bool kept_ = false;
};

}  // namespace

void check_collectives(Program& program) {
  for (const FlatParameter& flat : program.flat_parameters().list)
    if (flat.ranks.extent > 1) FlatCheck(program, flat).run();
  program.flat_parameters() = {};
}

}  // namespace prun
