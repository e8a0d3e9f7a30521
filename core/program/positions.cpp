// Makes a program that takes text some positions at a time: its sequences are short, and its ops keep what
// they need of the positions before. An encoder sees all of its own positions, which come first in a
// sequence.
#include <algorithm>
#include <string_view>

#include "program/passes.hpp"
#include "program/step.hpp"
#include "program/text_steps.hpp"

namespace prun {
namespace {

// This is few enough that a token takes about as long as one position alone would, since the parameters are
// read once, and enough that a prompt need not be read position by position.
constexpr std::int64_t at_a_time = 8;

class FewPositions {
 public:
  explicit FewPositions(Program& program)
      : program_(program),
        steps_(program),
        whole_(tokens().dims[1]),
        head_(positions_of_head(program)),
        seq_(head_.value_or(whole_)),
        few_(std::min(at_a_time, seq_.extent)) {}

  bool run() {
    if (!has_positions() || is_split() || !steps_.may_be_left()) return false;
    if (!each_op([&](Id op) { return can_step(op); })) return false;
    position_ = add_staged_scalar(program_, "position", {});
    each_op([&](Id op) {
      step(op);
      return true;
    });
    shorten();
    return true;
  }

 private:
  const Value& tokens() const { return program_.value(program_.input(program_.step_segment(), "tokens")); }

  static bool has(const Value& value, const Name& name) {
    return std::any_of(value.dims.begin(), value.dims.end(),
                       [&](const Dim& dim) { return dim.name == name; });
  }

  // Says whether it is known which positions the head has logits of; those of a batch are none.
  bool has_positions() const { return head_.has_value() && head_->name != tokens().dims[0].name; }

  // Says whether ranks split positions, or split what stays between steps.
  bool is_split() const {
    const auto over_ranks = [&](const Split& split) {
      return split.dim == seq_.name || split.dim == whole_.name;
    };
    const auto stays = [&](Id parameter) { return has(program_.value(parameter), seq_.name); };
    const std::vector<Id> parameters = program_.parameters();
    return std::any_of(program_.requests().splits.begin(), program_.requests().splits.end(), over_ranks) ||
           std::any_of(parameters.begin(), parameters.end(), stays);
  }

  // Says whether body(op) is true for all of the model's forward.
  template <class Body>
  bool each_op(Body&& body) {
    for (Id segment = program_.step_segment() + 1; segment < program_.segment_count(); ++segment) {
      const std::vector<Id> ops = program_.segment(segment).ops(FunctionKind::forward);
      if (!std::all_of(ops.begin(), ops.end(), body)) return false;
    }
    return true;
  }

  // A head stands beside the op that gives its logits, and goes with the training.
  bool can_step(Id id) const {
    const Op& op = program_.op(id);
    if (seq_.name != whole_.name && touches_whole(op) && !cuts(id)) return false;
    if (op.def->logits || !steps_.is_stepped(id)) return true;
    if (!op.def->at_position || !program_.registry().contains(op.def->at_position)) return false;
    // An op without a mask treats all positions alike, and one with a mask does not.
    if (op.has_attr("causal") && (program_.attr(id, "causal") == 0) != op.is(op.def->at_position))
      return false;
    // Keys that all positions look at have to be the same in each step.
    if (op.is(op.def->at_position) && op.has_attr("causal"))
      for (std::size_t i = 1; i < op.operands.size(); ++i)
        if (op.operands[i] != none && op.access(i) == Access::read && steps_.moves(op.operands[i]))
          return false;
    const OpDef& def = program_.registry().find(op.def->at_position);
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && operand_named(def, op.def->operands[i].name) == def.operand_count)
        return false;
    return true;
  }

  bool touches_whole(const Op& op) const {
    return std::any_of(op.operands.begin(), op.operands.end(), [&](Id operand) {
      return operand != none && has(program_.value(operand), whole_.name);
    });
  }

  // Says whether the op takes a stretch of the sequence: that of the head's positions, which is its end, or
  // one in front of that.
  bool cuts(Id id) const {
    const Op& op = program_.op(id);
    if (!op.has_attr("begin") || !op.has_attr("end")) return false;
    const auto begin = static_cast<std::int64_t>(program_.attr(id, "begin")),
               end = static_cast<std::int64_t>(program_.attr(id, "end")), first = whole_.extent - seq_.extent;
    return steps_.is_stepped(id) ? begin == first && end == whole_.extent : end <= first;
  }

  static std::size_t operand_named(const OpDef& def, std::string_view name) {
    std::size_t i = 0;
    while (i < def.operand_count && def.operands[i].name != name) ++i;
    return i;
  }

  void step(Id id) {
    const Op op = program_.op(id);
    if (op.def->logits || !steps_.is_stepped(id) || op.is(op.def->at_position)) return;
    const OpDef& def = program_.registry().find(op.def->at_position);
    std::vector<Id> operands;
    for (std::size_t i = 0; i < def.operand_count; ++i)
      operands.push_back(operand_for(op, def.operands[i], id));
    std::vector<AttrValue> attrs;
    for (std::size_t i = 0; i < op.def->attr_count; ++i) {
      const char* const name = op.def->attrs[i].name;
      const bool noise =
          op.def->noise && std::string_view(op.def->noise) == name;  // none where nothing trains
      attrs.push_back({name, noise ? 0 : program_.attr(id, name)});
    }
    replaced_.push_back({id, def.kind, std::move(operands), std::move(attrs)});
  }

  Id operand_for(const Op& op, const OperandDef& wanted, Id id) {
    constexpr std::string_view kept = "kept_";
    const std::string_view name = wanted.name;
    if (name == "position") return position_;
    if (const std::size_t i = operand_named(*op.def, name); i < op.operands.size()) return op.operands[i];
    const std::size_t of =
        name.starts_with(kept) ? operand_named(*op.def, name.substr(kept.size())) : op.operands.size();
    if (of < op.operands.size() && op.operands[of] != none)
      return keep(program_.value(op.operands[of]), wanted, id);
    if (!wanted.optional)
      throw_error(ErrorCode::unsupported, "op '", op.def->at_position, "' has an operand '", name, "' that '",
                  op.kind(), "' has not; of its own it may have 'position' and 'kept_x' for an operand x");
    return none;
  }

  // Adds the value of an operand at all positions, with those that the last one of the sequence adds.
  Id keep(const Value& of, const OperandDef& operand, Id op) {
    Value kept;
    kept.name = detail::concat(operand.name, ".", op);
    kept.role = Role::state;
    kept.carried = true;
    kept.dtype = of.dtype;
    kept.dims = of.dims;
    kept.segment = program_.op(op).segment;
    for (Dim& dim : kept.dims)
      if (dim.name == seq_.name) dim = {"kept", seq_.extent + few_ - 1};
    return program_.add_value(std::move(kept));
  }

  // All ops change at once: an op is checked against its rule when it is put in place.
  void shorten() {
    const std::int64_t fewer = seq_.extent - few_;
    for (Id id = 0; id < program_.value_count(); ++id)
      for (Dim& dim : program_.value(id).dims)
        if (dim.name == seq_.name || dim.name == whole_.name) dim.extent -= fewer;
    each_op([&](Id id) {
      if (seq_.name != whole_.name && touches_whole(program_.op(id)) && steps_.is_stepped(id))
        program_.set_attr(id, "end", static_cast<double>(whole_.extent - fewer));
      return true;
    });
    for (Replaced& op : replaced_) program_.replace_op(op.id, op.kind, std::move(op.operands), op.attrs);
  }

  struct Replaced {
    Id id;
    std::string_view kind;
    std::vector<Id> operands;
    std::vector<AttrValue> attrs;
  };

  Program& program_;
  const TextSteps steps_;
  const Dim whole_;                // all positions of a sequence
  const std::optional<Dim> head_;  // those that the head has logits of
  const Dim seq_;                  // these, or all where that is not known
  const std::int64_t few_;
  Id position_ = none;
  std::vector<Replaced> replaced_;
};

}  // namespace

bool step_by_positions(Program& program) { return FewPositions(program).run(); }

}  // namespace prun
