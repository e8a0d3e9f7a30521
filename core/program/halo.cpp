#include "program/halo.hpp"

#include <algorithm>
#include <string_view>

namespace prun {
namespace {

bool knows(const OpDef& def, std::string_view attr) {
  return std::any_of(def.attrs, def.attrs + def.attr_count,
                     [&](const AttrDef& one) { return std::string_view(one.name) == attr; });
}

}  // namespace

Halo::Halo(Program& program, SequenceOrder order, std::int64_t positions, std::int64_t parts)
    : program_(program),
      order_(order),
      parts_(parts),
      rows_(positions % parts == 0 ? positions / parts : 0) {}

std::int64_t Halo::reach(Id op, const OpDef& across) const {
  if (!knows(across, "ahead") || !knows(*program_.op(op).def, "window")) return 0;
  const auto window = static_cast<std::int64_t>(program_.attr(op, "window"));
  const std::int64_t reach = std::max<std::int64_t>(window - 1, 1);
  return window > 0 && reach < rows_ ? reach : 0;
}

Id Halo::joined(Id value, std::int64_t reach, Id before) {
  const Op op = program_.op(before);
  const std::vector<AttrValue> all = attrs(reach);
  const Id tails = create(op, "halo_tails", {value}, std::span(all).first(2), before);
  const Id halo = create(op, "as_context", {tails}, order_of_tails(reach), before);
  return create(op, "join_halo", {value, halo}, all, before);
}

Id Halo::given_back(Id value, std::int64_t reach, const Op& op, Id next) {
  Value with_halo = program_.value(value);
  with_halo.name += ".halo";
  with_halo.dims[1].extent += with_halo.dims[1].extent / rows_ * reach;
  const Id made = program_.add_value(std::move(with_halo));
  const std::vector<AttrValue> all = attrs(reach);
  const std::vector<Id> apart =
      program_.add_op_creating(op.segment, op.function, op.part, "part_halo", std::span(&made, 1), all, next);
  const Id tails = create(op, "as_seq", {apart[1]}, order_of_tails(reach), next);
  program_.add_op(op.segment, op.function, op.part, "add_tails", {apart[0], tails, value},
                  std::span(all).first(2), next);
  return made;
}

std::vector<AttrValue> Halo::attrs_across(std::int64_t reach) const {
  if (reach == 0) return {};
  return {{"ahead", static_cast<double>(reach)}, {"parts", static_cast<double>(parts_)}};
}

std::vector<AttrValue> Halo::attrs(std::int64_t reach) const {
  return {{"rows", static_cast<double>(rows_)},
          {"reach", static_cast<double>(reach)},
          {"parts", static_cast<double>(parts_)},
          {"chunks", static_cast<double>(order_.chunks)}};
}

std::vector<AttrValue> Halo::order_of_tails(std::int64_t reach) const {
  return {{"chunk", static_cast<double>(order_.permutes() ? reach : 0)},
          {"chunks", static_cast<double>(order_.chunks)}};
}

Id Halo::create(const Op& like, const char* kind, std::initializer_list<Id> inputs,
                std::span<const AttrValue> attrs, Id before) {
  return program_.add_op_creating(like.segment, like.function, like.part, kind,
                                  std::span(inputs.begin(), inputs.size()), attrs, before)[0];
}

}  // namespace prun
