#include "placement/flat_ranges.hpp"

#include "ops/base_ops.hpp"
#include "program/passes.hpp"

namespace prun {

Id FlatRanges::add(const char* kind, std::vector<Id> operands, std::span<const AttrValue> attrs) {
  return program_.add_op(bucket_.segment, FunctionKind::update, Part::input, kind, std::move(operands),
                         attrs);
}

Id FlatRanges::exchange(const char* kind, Id from, Id to) {
  const AttrValue along[] = {axis_attr(bucket_.axis), {"dim", 0}, {"parts", static_cast<double>(parts_)}};
  return add(kind, {from, to}, along);
}

Id FlatRanges::add_range(const Value& like, const char* suffix, bool own) {
  Value value;
  value.name = detail::concat(like.name, suffix);
  value.dtype = like.dtype;
  value.segment = bucket_.segment;
  value.placement.resize(program_.mesh().size());
  value.dims = {{"packed", bucket_.elements}};
  if (own)
    value.placement = shards_over(program_, bucket_.axis);
  else
    value.dims = {{"parts", parts_}, {"packed", bucket_.elements / parts_}};
  return program_.add_value(std::move(value));
}

Id FlatRanges::gathered(Id own) {
  if (parts_ == 1) return own;
  const auto [entry, fresh] = gathered_.try_emplace(own, none);
  if (!fresh) return entry->second;
  entry->second = add_range(Value(program_.value(own)), ".together", false);
  exchange(base_ops::all_gather, own, entry->second);
  part_ = own;
  return entry->second;
}

}  // namespace prun
