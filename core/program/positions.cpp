// Makes a program that takes text some positions at a time: its sequences are short, and its ops keep what
// they need of the positions before.
#include <algorithm>
#include <string_view>

#include "program/passes.hpp"
#include "program/step.hpp"

namespace prun {
namespace {

// This is few enough that a token takes about as long as one position alone would, since the parameters are
// read once, and enough that a prompt need not be read position by position.
constexpr std::int64_t at_a_time = 8;

class FewPositions {
 public:
  explicit FewPositions(Program& program)
      : program_(program), seq_(tokens().dims[1]), few_(std::min(at_a_time, seq_.extent)) {}

  bool run() {
    if (is_split() || !each_op([&](Id op) { return can_step(program_.op(op)); })) return false;
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

  // Says whether ranks split positions, or split what stays between steps.
  bool is_split() const {
    const auto over_ranks = [&](const Split& split) { return split.dim == seq_.name; };
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
  bool can_step(const Op& op) const {
    if (op.def->logits) return true;
    if (!op.def->at_position) return false;
    if (!op.def->at_position || !program_.registry().contains(op.def->at_position)) return false;
    const OpDef& def = program_.registry().find(op.def->at_position);
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && operand_named(def, op.def->operands[i].name) == def.operand_count)
        return false;
    return true;
  }

  static std::size_t operand_named(const OpDef& def, std::string_view name) {
    std::size_t i = 0;
    while (i < def.operand_count && def.operands[i].name != name) ++i;
    return i;
  }

  void step(Id id) {
    const Op op = program_.op(id);
    if (op.def->logits || op.is(op.def->at_position)) return;
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
    for (Id id = 0; id < program_.value_count(); ++id)
      for (Dim& dim : program_.value(id).dims)
        if (dim.name == seq_.name) dim.extent = few_;
    for (Replaced& op : replaced_) program_.replace_op(op.id, op.kind, std::move(op.operands), op.attrs);
  }

  struct Replaced {
    Id id;
    std::string_view kind;
    std::vector<Id> operands;
    std::vector<AttrValue> attrs;
  };

  Program& program_;
  const Dim seq_;
  const std::int64_t few_;
  Id position_ = none;
  std::vector<Replaced> replaced_;
};

}  // namespace

bool step_by_positions(Program& program) { return FewPositions(program).run(); }

}  // namespace prun
