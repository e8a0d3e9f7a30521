// Rewrites a program for sequences that ranks share out. An op that treats positions alike needs nothing; one
// that reads all of them (OpDef::across) gets that operand whole, in a dimension of its own, and keeps its
// part of the rest; if it reads no further back than some positions, it gets these alone (program/halo.hpp).
// Backward gathers it once more: what is kept for backward lies in parts. Where parts are
// not in order, ops that do something else at each position learn which one is where.
#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "program/halo.hpp"
#include "program/head_pieces.hpp"
#include "program/passes.hpp"

namespace prun {
namespace {

std::size_t operand_called(const OpDef& def, std::string_view name) {
  std::size_t i = 0;
  while (i < def.operand_count && def.operands[i].name != name) ++i;
  return i;
}

class SharingOut {
 public:
  SharingOut(Program& program, AxisId axis, SequenceOrder order, std::int64_t pieces)
      : program_(program),
        order_(order),
        halo_(program, axis, order, program.value(tokens()).dims[1].extent),
        pieces_(program, pieces),
        seq_(program.value(tokens()).dims[1].name) {}

  void run() {
    for (segment_ = 0; segment_ < program_.segment_count(); ++segment_)
      for (int kind = 0; kind < function_kinds; ++kind) {
        const std::vector<Id> ops = program_.segment(segment_).ops(static_cast<FunctionKind>(kind));
        contexts_.clear();
        pieces_.begin_function();
        positions_ = none;
        for (std::size_t i = 0; i < ops.size(); ++i) visit(ops[i], i + 1 < ops.size() ? ops[i + 1] : none);
      }
  }

 private:
  Id tokens() const { return program_.input(program_.step_segment(), "tokens"); }

  void visit(Id id, Id next) {
    if (program_.op(id).def->across) return look_across(id, next);
    if (!order_.permutes()) return;
    const Op& op = program_.op(id);
    if (const std::size_t i = operand_called(*op.def, "positions"); i < op.operands.size())
      program_.replace_operand(id, i, positions(id));
    else
      check_order(id);
  }

  // Refuses an op that wants all of a sequence and is not told the order: it would take places for positions.
  void check_order(Id id) const {
    const Op& op = program_.op(id);
    if (op.def->any_order) return;
    OpShape shape = program_.shape(op);
    raise(op.def->rule(&shape));
    if (std::find(std::begin(shape.wholes), std::end(shape.wholes), seq_) != std::end(shape.wholes))
      throw_error(ErrorCode::unsupported, "segment '", program_.segment(op.segment).name, "', op '",
                  op.kind(),
                  "' looks at whole sequences, and has neither an operand 'positions' nor another "
                  "op that looks across parts (OpDef::across), nor says that their order is all one "
                  "(OpDef::any_order), so sequences must lie in order: balance = \"none\"");
  }

  void look_across(Id id, Id next) {
    const Op op = program_.op(id);
    const OpDef& def = program_.registry().find(op.def->across);
    std::vector<AttrValue> attrs = {{"chunk", static_cast<double>(order_.chunk)},
                                    {"chunks", static_cast<double>(order_.chunks)}};
    for (std::size_t i = 0; i < op.def->attr_count; ++i) carry_over(id, op.def->attrs[i], def, attrs);
    reach_ = halo_.reach(id, def);
    for (const AttrValue& attr : halo_.attrs_across(reach_)) attrs.push_back(attr);
    if (pieces_.count() == 1) {
      std::vector<Id> operands;
      for (std::size_t i = 0; i < def.operand_count; ++i)
        operands.push_back(operand_for(operand_of(op, def.operands[i]), def.operands[i], id, next));
      program_.replace_op(id, def.kind, std::move(operands), attrs);
      return;
    }
    look_in_pieces(id, def, attrs);
  }

  // Passes an attribute on, and refuses one that the other op does not know unless it has its fallback value.
  void carry_over(Id id, const AttrDef& attr, const OpDef& to, std::vector<AttrValue>& attrs) const {
    const double value = program_.attr(id, attr.name);
    const bool known = std::any_of(to.attrs, to.attrs + to.attr_count, [&](const AttrDef& other) {
      return std::string_view(other.name) == attr.name;
    });
    if (known)
      attrs.push_back({attr.name, value});
    else if (value != (attr.real ? attr.fallback.f : static_cast<double>(attr.fallback.i)))
      throw_error(ErrorCode::unsupported, "op '", program_.op(id).kind(), "' has ", attr.name, " = ", value,
                  ", and '", to.kind,
                  "', which does the same across parts of sequences, does not know that; "
                  "ranks cannot share these out");
  }

  // Gathers all pieces first, so that each may travel while the op runs on the one before.
  void look_in_pieces(Id id, const OpDef& def, const std::vector<AttrValue>& attrs) {
    const Op op = program_.op(id);
    std::vector<std::vector<Id>> parts(def.operand_count);  // values by operand and piece
    for (std::size_t i = 0; i < def.operand_count; ++i) {
      const Id value = operand_of(op, def.operands[i]);
      for (std::int64_t piece = 0; piece < pieces_.count(); ++piece)
        parts[i].push_back(def.operands[i].access == Access::read ? pieces_.taken(value, piece, id)
                                                                  : pieces_.piece_like(value));
    }
    for (std::int64_t piece = 0; piece < pieces_.count(); ++piece) {
      std::vector<Id> operands;
      for (std::size_t i = 0; i < def.operand_count; ++i)
        operands.push_back(operand_for(parts[i][static_cast<std::size_t>(piece)], def.operands[i], id, id));
      // The op goes behind what gathers its operands, and before what makes parts of its results.
      program_.add_op(op.segment, op.function, op.part, def.kind, operands, attrs,
                      first_reader(operands, def, id));
    }
    for (std::size_t i = 0; i < def.operand_count; ++i)
      if (def.operands[i].access == Access::write && operand_of(op, def.operands[i]) != none)
        pieces_.join(parts[i], operand_of(op, def.operands[i]), op, id);
    program_.erase_op(id);
  }

  // Returns the op that takes back what the op will write, or `otherwise` if there is none.
  Id first_reader(const std::vector<Id>& operands, const OpDef& def, Id otherwise) const {
    const Op& place = program_.op(otherwise);
    for (const Id op : program_.segment(place.segment).ops(place.function)) {
      if (op == otherwise) break;
      for (std::size_t i = 0; i < operands.size(); ++i)
        if (def.operands[i].access == Access::write && program_.op(op).operands.front() == operands[i])
          return op;
    }
    return otherwise;
  }

  static constexpr std::string_view all = "all_";

  // Returns the operand of the op that reads whole sequences which corresponds to that operand of the other
  // op.
  static Id operand_of(const Op& op, const OperandDef& wanted) {
    const std::string_view name = wanted.name;
    const std::size_t i = operand_called(*op.def, name.starts_with(all) ? name.substr(all.size()) : name);
    if (i == op.operands.size() || op.access(i) != wanted.access)
      throw_error(ErrorCode::unsupported, "op '", op.def->across, "' has an operand '", name, "', and '",
                  op.kind(), "' none that it is");
    return op.operands[i];
  }

  Id operand_for(Id value, const OperandDef& wanted, Id before, Id behind) {
    if (!std::string_view(wanted.name).starts_with(all) || value == none) return value;
    return wanted.access == Access::read ? context_of(value, before)
                                         : given_back(value, program_.op(before), behind);
  }

  Id context_of(Id value, Id before) {
    const std::pair key(value, reach_);
    if (const auto known = contexts_.find(key); known != contexts_.end()) return known->second;
    if (reach_ > 0) return contexts_[key] = halo_.joined(value, reach_, before);
    const Op& op = program_.op(before);
    return contexts_[key] = program_.add_op_creating(op.segment, op.function, op.part, "as_context",
                                                     std::span(&value, 1), order_attrs(), before)[0];
  }

  // Returns the op's result for all positions it reads; an op behind it turns that into `value`.
  Id given_back(Id value, const Op& op, Id next) {
    if (reach_ > 0) return halo_.given_back(value, reach_, op, next);
    Value whole = program_.value(value);
    whole.name += ".all";
    for (Dim& dim : whole.dims)
      if (dim.name == seq_) dim.name = "context";
    const Id made = program_.add_value(std::move(whole));
    program_.add_op(op.segment, op.function, op.part, "as_seq", {made, value}, order_attrs(), next);
    return made;
  }

  Id positions(Id before) {
    const Id tokens = this->tokens();
    const Op& op = program_.op(before);
    if (positions_ == none)
      positions_ = program_.add_op_creating(op.segment, op.function, Part::input, "positions",
                                            std::span(&tokens, 1), order_attrs(), before)[0];
    return positions_;
  }

  std::array<AttrValue, 2> order_attrs() const {
    return {AttrValue{"chunk", static_cast<double>(order_.chunk)},
            AttrValue{"chunks", static_cast<double>(order_.chunks)}};
  }

  Program& program_;
  const SequenceOrder order_;
  Halo halo_;
  HeadPieces pieces_;
  const Name seq_;
  Id segment_ = 0;
  std::int64_t reach_ = 0;  // that of the op at hand; 0: it reads all positions
  // These belong to the function at hand.
  std::map<std::pair<Id, std::int64_t>, Id> contexts_;  // by value and reach
  Id positions_ = none;
};

}  // namespace

void share_out_sequence(Program& program, std::string_view axis, SequenceShares shares) {
  const AxisId found = program.mesh().find(axis);
  if (found == no_axis)
    throw_error(ErrorCode::bad_input, "the mesh has no axis '", axis, "' to share sequences out over");
  Requests& requests = program.requests();
  if (requests.sequence_axis)
    throw_error(ErrorCode::bad_input, "two strategies share sequences out over ranks; keep one of them");
  requests.sequence_axis = found;
  const Dim seq = program.value(program.input(program.step_segment(), "tokens")).dims[1];
  program.split(seq.name.view(), axis);
  const std::int64_t ranks = program.mesh().extent(found);
  if (ranks == 1) return;
  if (shares.balance == SequenceBalance::zigzag) {
    if (seq.extent % (2 * ranks) != 0)
      throw_error(ErrorCode::unsupported, "sequences of ", seq.extent, " positions cannot be cut into ",
                  2 * ranks, " equal chunks, two for each of ", axis, " = ", ranks,
                  "; choose model.seq as a multiple of ", 2 * ranks);
    requests.sequence_order = {seq.extent / (2 * ranks), 2 * ranks};
  }
  check_pieces(program, shares.pieces);
  SharingOut(program, found, requests.sequence_order, shares.pieces).run();
}

namespace {

// Refuses a dimension in parts of parts that would have to be gathered before it is exchanged for another.
void check_exchanged(const Program& program) {
  const Mesh& mesh = program.mesh();
  for (const Split& wish : program.requests().exchanged)
    for (const Split& split : program.requests().splits) {
      if (split.dim != wish.dim || split.axis <= wish.axis || mesh.extent(split.axis) == 1) continue;
      const std::string other = mesh.name(split.axis), axis = mesh.name(wish.axis);
      throw_error(ErrorCode::bad_input, "axis '", other, "' splits ", wish.dim.view(),
                  " too and stands behind '", axis,
                  "' in [mesh], which would have to gather what it exchanges; ",
                  split.scope == SplitScope::ops ? "give the ranks of both to one of them"
                                                 : detail::concat("name '", other, "' first"));
    }
}

}  // namespace

void check_sequence_axes(const Program& program) {
  check_exchanged(program);
  const Requests& requests = program.requests();
  if (!requests.sequence_axis) return;
  const Mesh& mesh = program.mesh();
  const Name seq = program.value(program.inputs().front()).dims[1].name;  // dimension of the tokens
  for (const Split& split : requests.splits)
    if (split.dim == seq && split.axis < *requests.sequence_axis && mesh.extent(split.axis) > 1)
      throw_error(ErrorCode::bad_input, "axis '", mesh.name(split.axis),
                  "' splits sequences too and stands before '", mesh.name(*requests.sequence_axis),
                  "' in [mesh], whose ranks would have to gather what it "
                  "exchanges; name '",
                  mesh.name(*requests.sequence_axis), "' first");
}

}  // namespace prun
