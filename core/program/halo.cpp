#include "program/halo.hpp"

#include <algorithm>
#include <string_view>

namespace prun {
namespace {

bool knows(const OpDef& def, std::string_view attr) {
  return std::any_of(def.attrs, def.attrs + def.attr_count,
                     [&](const AttrDef& one) { return std::string_view(one.name) == attr; });
}

std::int64_t parts_of(const Program& program, AxisId axis, SequenceOrder order) {
  return order.permutes() ? order.chunks : program.mesh().extent(axis);
}

}  // namespace

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
    const Id tails = create(op, "halo_tails", {own}, std::span(of_tails).first(2), before);
    const Id halo = shifted(tails, piece.distance, op, before);
    value = create(op, "join_halo", {value, halo}, attrs(piece, piece.rows), before);
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
    const std::vector<Id> apart = program_.add_op_creating(
        op.segment, op.function, op.part, "part_halo", std::span(&rest, 1), std::span(all).first(2), next);
    rest = apart[0];
    halos.insert(halos.begin(), apart[1]);
  }
  for (std::size_t i = pieces.size(); i-- > 0;) {
    const Id tails = shifted(halos[i], -pieces[i].distance, op, next);
    const std::vector<AttrValue> all = attrs(pieces[i], rows_);
    if (i > 0)
      rest = create(op, "add_tails", {rest, tails, halos[i]}, all, next);
    else
      program_.add_op(op.segment, op.function, op.part, "add_tails", {rest, tails, halos[i], value}, all,
                      next);
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
  return create(like, "shift", {value}, attrs, before);
}

Id Halo::create(const Op& like, const char* kind, std::initializer_list<Id> inputs,
                std::span<const AttrValue> attrs, Id before) {
  return program_.add_op_creating(like.segment, like.function, like.part, kind,
                                  std::span(inputs.begin(), inputs.size()), attrs, before)[0];
}

}  // namespace prun
