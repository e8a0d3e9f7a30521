// Rewrites a program for sequences that ranks share out. An op that treats positions alike needs nothing; one
// that reads all of them (OpDef::across) gets that operand whole, in a dimension of its own, and keeps its
// part of the rest; if it reads no further back than some positions, it gets these alone
// (program/sequence.cpp). Backward gathers it once more: what is kept for backward lies in parts. Where parts
// are not in order, ops that do something else at each position learn which one is where.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/require.hpp"
#include "ops/base_ops.hpp"
#include "program/passes.hpp"
#include "program/step_program.hpp"
#include "prun/sequence_order.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------ halo

// Has an op that reads only so many positions back get these in front of each chunk of a rank's part of the
// sequence, its halo, instead of all positions: a rank gets the last positions of the chunks before its own
// from those that have them, and no others.
class Halo {
 public:
  // Ranks of the axis share out sequences of so many positions in chunks, two each if these lie in an order
  // of their own.
  Halo(Program& program, AxisId axis, SequenceOrder order, std::int64_t positions);

  // Returns how many positions ahead of a chunk `across` takes in the op's place, or 0 if it takes all. It
  // does with an attribute `ahead`, if the op's attribute `window`, which counts the position itself, says
  // that a rank needs fewer of them than of all.
  std::int64_t reach(Id op, const OpDef& across) const;
  // Returns a value with `reach` positions ahead of each chunk, put together before `before`, an op.
  Id joined(Id value, std::int64_t reach, Id before);
  // Returns what has a result with `reach` positions ahead of each chunk; ops before `next` make `value` of
  // it. They belong to the function of `op`.
  Id given_back(Id value, std::int64_t reach, const Op& op, Id next);
  // Says what the op in an op's place is told of its keys.
  std::vector<AttrValue> attrs_across(std::int64_t reach) const;

 private:
  // Is what a halo has of the chunk `distance` before it, in front of which come so many rows.
  struct Piece {
    std::int64_t distance, reach, rows;
  };
  std::vector<Piece> pieces_of(std::int64_t reach) const;
  std::vector<AttrValue> attrs(const Piece& piece, std::int64_t rows) const;
  Id shifted(Id value, std::int64_t distance, const Op& like, Id before);
  Id create(const Op& like, const char* kind, std::initializer_list<Id> inputs,
            std::span<const AttrValue> attrs, Id before);

  Program& program_;
  const AxisId axis_;
  const SequenceOrder order_;
  const std::int64_t parts_, rows_;  // 0 rows: chunks are not equal, which is refused elsewhere
};

bool knows(const OpDef& def, std::string_view attr) {
  return std::any_of(def.attrs, def.attrs + def.attr_count,
                     [&](const AttrDef& one) { return std::string_view(one.name) == attr; });
}

std::int64_t parts_of(const Program& program, AxisId axis, SequenceOrder order) {
  return order.permutes() ? order.chunks : program.mesh().extent(axis);
}

Halo::Halo(Program& program, AxisId axis, SequenceOrder order, std::int64_t positions)
    : program_(program),
      axis_(axis),
      order_(order),
      parts_(parts_of(program, axis, order)),
      rows_(positions % parts_ == 0 ? positions / parts_ : 0) {}

std::int64_t Halo::reach(Id op, const OpDef& across) const {
  if (!knows(across, "ahead") || !knows(*program_.op(op).def, "window")) return 0;
  const auto window = static_cast<std::int64_t>(program_.attr(op, "window"));
  const std::int64_t reach = std::max<std::int64_t>(window - 1, 1),
                     of_rank = parts_ / program_.mesh().extent(axis_);
  return window > 0 && of_rank * (reach + rows_) < parts_ * rows_ ? reach : 0;
}

std::vector<Halo::Piece> Halo::pieces_of(std::int64_t reach) const {
  std::vector<Piece> pieces;
  for (std::int64_t rows = rows_; rows < rows_ + reach; rows += rows_)
    pieces.push_back({rows / rows_, std::min(rows_, rows_ + reach - rows), rows});
  return pieces;
}

Id Halo::joined(Id value, std::int64_t reach, Id before) {
  const Op op = program_.op(before);
  const Id own = value;
  for (const Piece& piece : pieces_of(reach)) {
    const std::vector<AttrValue> of_tails = attrs(piece, rows_);
    const Id tails = create(op, base_ops::halo_tails, {own}, std::span(of_tails).first(2), before);
    const Id halo = shifted(tails, piece.distance, op, before);
    value = create(op, base_ops::join_halo, {value, halo}, attrs(piece, piece.rows), before);
  }
  return value;
}

Id Halo::given_back(Id value, std::int64_t reach, const Op& op, Id next) {
  Value with_halo = program_.value(value);
  with_halo.name += ".halo";
  with_halo.dims[1].extent += parts_ * reach;
  const Id made = program_.add_value(std::move(with_halo));
  std::vector<Piece> pieces = pieces_of(reach);
  std::vector<Id> halos;
  Id rest = made;
  for (std::size_t i = pieces.size(); i-- > 0;) {  // the furthest comes first
    const std::vector<AttrValue> all = attrs(pieces[i], pieces[i].rows);
    const std::vector<Id> apart =
        program_.add_op_creating(op.segment, op.function, op.part, base_ops::part_halo, std::span(&rest, 1),
                                 std::span(all).first(2), next);
    rest = apart[0];
    halos.insert(halos.begin(), apart[1]);
  }
  for (std::size_t i = pieces.size(); i-- > 0;) {
    const Id tails = shifted(halos[i], -pieces[i].distance, op, next);
    const std::vector<AttrValue> all = attrs(pieces[i], rows_);
    if (i > 0)
      rest = create(op, base_ops::add_tails, {rest, tails, halos[i]}, all, next);
    else
      program_.add_op(op.segment, op.function, op.part, base_ops::add_tails, {rest, tails, halos[i], value},
                      all, next);
  }
  return made;
}

std::vector<AttrValue> Halo::attrs_across(std::int64_t reach) const {
  if (reach == 0) return {};
  return {{"ahead", static_cast<double>(reach)}, {"parts", static_cast<double>(parts_)}};
}

std::vector<AttrValue> Halo::attrs(const Piece& piece, std::int64_t rows) const {
  return {{"rows", static_cast<double>(rows)},
          {"reach", static_cast<double>(piece.reach)},
          {"distance", static_cast<double>(piece.distance)},
          {"parts", static_cast<double>(parts_)},
          {"chunks", static_cast<double>(order_.chunks)}};
}

// Has parts of the sequence shift among the ranks.
Id Halo::shifted(Id value, std::int64_t distance, const Op& like, Id before) {
  const AttrValue attrs[] = {axis_attr(axis_),
                             {"dim", 1},
                             {"distance", static_cast<double>(distance)},
                             {"chunks", static_cast<double>(order_.chunks)}};
  return create(like, base_ops::shift, {value}, attrs, before);
}

Id Halo::create(const Op& like, const char* kind, std::initializer_list<Id> inputs,
                std::span<const AttrValue> attrs, Id before) {
  return program_.add_op_creating(like.segment, like.function, like.part, kind,
                                  std::span(inputs.begin(), inputs.size()), attrs, before)[0];
}

// ------------------------------------------------------------ head pieces

// Cuts values into pieces of their heads, so that each piece may travel while an op runs on the one before.
class HeadPieces {
 public:
  HeadPieces(Program& program, std::int64_t count) : program_(program), count_(count) {}

  std::int64_t count() const { return count_; }
  // Forgets the pieces of the function before, which are not there in this one.
  void begin_function() { taken_.clear(); }
  // Returns a piece, cut out once in a function; a value without heads is its own piece.
  Id taken(Id value, std::int64_t piece, Id before);
  // Adds a value for a piece of this future value.
  Id piece_like(Id value);
  // Puts the pieces together, as `op` computes them, before `before`.
  void join(const std::vector<Id>& pieces, Id whole, const Op& op, Id before);

 private:
  Program& program_;
  const std::int64_t count_;
  std::map<std::pair<Id, std::int64_t>, Id> taken_;
};

constexpr std::size_t most_pieces = 8;  // the most that join_pieces takes

std::optional<std::size_t> heads_of(const Program& program, Id value) {
  const std::vector<Dim>& dims = program.value(value).dims;
  for (std::size_t d = 0; d < dims.size(); ++d)
    if (dims[d].name == Name("heads")) return d;
  return {};
}

// Refuses a number of pieces that some value with heads cannot be cut into equally.
void check_pieces(const Program& program, std::int64_t pieces) {
  if (pieces < 1 || pieces > static_cast<std::int64_t>(most_pieces))
    throw_error(ErrorCode::bad_input, "keys and values come in 1 to ", most_pieces, " pieces, not ", pieces);
  for (Id id = 0; id < program.value_count(); ++id)
    for (const Dim& dim : program.value(id).dims)
      if (dim.name == Name("heads") && dim.extent % pieces != 0)
        throw_error(ErrorCode::unsupported, dim.extent, " groups of heads cannot be cut into ", pieces,
                    " equal pieces; choose a divisor of them");
}

Id HeadPieces::taken(Id value, std::int64_t piece, Id before) {
  if (value == none || !heads_of(program_, value)) return value;
  const auto key = std::pair(value, piece);
  if (const auto known = taken_.find(key); known != taken_.end()) return known->second;
  const Op& op = program_.op(before);
  const AttrValue attrs[] = {{"dim", static_cast<double>(*heads_of(program_, value))},
                             {"piece", static_cast<double>(piece)},
                             {"pieces", static_cast<double>(count_)}};
  return taken_[key] = program_.add_op_creating(op.segment, op.function, op.part, base_ops::take_piece,
                                                std::span(&value, 1), attrs, before)[0];
}

Id HeadPieces::piece_like(Id value) {
  Value piece = program_.value(value);
  const std::optional<std::size_t> heads = heads_of(program_, value);
  PRUN_CHECK(heads, "'", piece.name, "' has no heads to make pieces of");
  piece.dims[*heads].extent /= count_;
  piece.name += ".piece";
  return program_.add_value(std::move(piece));
}

void HeadPieces::join(const std::vector<Id>& pieces, Id whole, const Op& op, Id before) {
  std::vector<Id> operands = pieces;
  operands.resize(most_pieces, none);
  operands.push_back(whole);
  const AttrValue dim{"dim", static_cast<double>(*heads_of(program_, whole))};
  program_.add_op(op.segment, op.function, op.part, base_ops::join_pieces, std::move(operands),
                  std::span(&dim, 1), before);
}

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
      throw_error(ErrorCode::unsupported, "cannot balance sequences: segment '",
                  program_.segment(op.segment).name, "', op '", op.kind(),
                  "' needs unsplit sequences in order: it has no operand 'positions', no op across ranks "
                  "(OpDef::across) and not OpDef::any_order; set balance = \"none\"");
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
      throw_error(ErrorCode::unsupported, "cannot split sequences over ranks: op '", program_.op(id).kind(),
                  "' has ", attr.name, " = ", value, ", and '", to.kind,
                  "', which replaces it there, has no such attribute; leave the strategy or the option out");
  }

  // Gathers all pieces first, so that each may travel while the op runs on the one before.
  void look_in_pieces(Id id, const OpDef& def, const std::vector<AttrValue>& attrs) {
    const Op op = program_.op(id);
    if (op.def->noise && program_.attr(id, op.def->noise) != 0)
      throw_error(ErrorCode::unsupported, "cannot gather heads of op '", op.kind(),
                  "' in pieces: its dropout depends on the numbers of heads; leave `pieces` of strategy "
                  "context at 1, or set the model's dropout to 0");
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
    check_is_shared_out(value, program_.op(before));
    const std::pair key(value, reach_);
    if (const auto known = contexts_.find(key); known != contexts_.end()) return known->second;
    if (reach_ > 0) return contexts_[key] = halo_.joined(value, reach_, before);
    const Op& op = program_.op(before);
    return contexts_[key] = program_.add_op_creating(op.segment, op.function, op.part, base_ops::as_context,
                                                     std::span(&value, 1), order_attrs(), before)[0];
  }

  // A strategy may have layers read something shorter than sequences (ProgramApi::replace_value).
  void check_is_shared_out(Id value, const Op& op) const {
    const std::vector<Dim>& dims = program_.value(value).dims;
    if (std::ranges::any_of(dims, [&](const Dim& dim) { return dim.name == seq_; })) return;
    throw_error(
        ErrorCode::unsupported, "cannot share out sequences over an axis: op '", op.kind(), "' of segment '",
        program_.segment(op.segment).name, "' reads '", program_.value(value).name,
        "', which has no dimension '", seq_.view(),
        "'; leave out one of the strategies: that over the axis, or that which changes what the op reads");
  }

  // Returns the op's result for all positions it reads; an op behind it turns that into `value`.
  Id given_back(Id value, const Op& op, Id next) {
    if (reach_ > 0) return halo_.given_back(value, reach_, op, next);
    Value whole = program_.value(value);
    whole.name += ".all";
    for (Dim& dim : whole.dims)
      if (dim.name == seq_) dim.name = "context";
    const Id made = program_.add_value(std::move(whole));
    program_.add_op(op.segment, op.function, op.part, base_ops::as_seq, {made, value}, order_attrs(), next);
    return made;
  }

  Id positions(Id before) {
    const Id tokens = this->tokens();
    const Op& op = program_.op(before);
    if (positions_ == none)
      positions_ = program_.add_op_creating(op.segment, op.function, Part::input, base_ops::positions,
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
    throw_error(ErrorCode::bad_input, "cannot split sequences over axis '", axis,
                "': [mesh] does not have it; add it there, or name another");
  Requests& requests = program.requests();
  if (requests.sequence_axis)
    throw_error(ErrorCode::bad_input, "two strategies split sequences over ranks; keep one of them");
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
  for (const Split& requested : program.requests().exchanged)
    for (const Split& split : program.requests().splits) {
      if (split.dim != requested.dim || split.axis <= requested.axis || mesh.extent(split.axis) == 1)
        continue;
      const std::string other = mesh.name(split.axis), axis = mesh.name(requested.axis);
      throw_error(ErrorCode::bad_input, "cannot split ", requested.dim.view(), " over axis '", axis,
                  "': axis '", other, "' splits them too and is named after it in [mesh]; ",
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
      throw_error(ErrorCode::bad_input, "cannot split sequences over axis '",
                  mesh.name(*requests.sequence_axis), "': axis '", mesh.name(split.axis),
                  "' splits them too and is named before it in [mesh]; name '",
                  mesh.name(*requests.sequence_axis), "' first");
}

}  // namespace prun
