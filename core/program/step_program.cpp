#include "program/step_program.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/require.hpp"

namespace prun {

std::int64_t Value::elements() const {
  std::int64_t n = 1;
  for (const Dim& dim : dims) n *= dim.extent;
  return n;
}

std::vector<Dim> Value::tensor_dims() const {
  std::vector<Dim> whole = dims;
  if (part) whole[part->dim] = part->whole;
  return whole;
}

bool Op::has_attr(std::string_view name) const {
  return std::any_of(def->attrs, def->attrs + def->attr_count,
                     [&](const AttrDef& attr) { return attr.name == name; });
}

OpCost Op::cost(const OpShape& shape) const {
  if (!def->cost)
    throw_error(ErrorCode::bad_input, "op '", kind(),
                "' does not say what it costs; give it a function cost");
  OpCost cost;
  raise(def->cost(&shape, &cost));
  for (const double number : {cost.flops, cost.bytes, cost.repeated})
    if (!std::isfinite(number) || number < 0)
      throw_error(ErrorCode::bad_input, "op '", kind(), "' says that it costs ", cost.flops, " FLOPs, ",
                  cost.bytes, " bytes, ", cost.repeated, " of them repeated; each is a number from 0 on");
  return cost;
}

bool Program::is_updated_with(Id id, std::int64_t delay) const {
  const Op& of = op(id);
  for (std::size_t i = 0; i < of.operands.size(); ++i)
    if (of.operands[i] != none && of.access(i) != Access::read && value(of.operands[i]).age > delay)
      return false;
  return true;
}

Program::Program(std::shared_ptr<const OpRegistry> registry, Precision precision, ModelContext context)
    : registry_(std::move(registry)), precision_(precision), context_(context) {
  add_segment("step", 1);
  declare_inputs();
}

void Program::declare_inputs() {
  const Dim batch{"batch", context_.batch}, seq{"seq", context_.seq};
  const auto declare = [&](const char* name, DType type, std::vector<Dim> dims) {
    Value value;
    value.name = name;
    value.role = Role::input;
    value.dtype = type;
    value.dims = std::move(dims);
    value.segment = step_segment();
    add_value(std::move(value));
  };
  declare("tokens", DType::i32, {batch, seq});
  declare("targets", DType::i32, {batch, seq});
  declare("samples", DType::i64, {batch});
}

const Value& Program::value(Id id) const {
  require(id < values_.size(), "no value ", id);
  return values_[id];
}
Value& Program::value(Id id) { return const_cast<Value&>(std::as_const(*this).value(id)); }

const Op& Program::op(Id id) const {
  require(id < ops_.size() && ops_[id].def, "no op ", id);
  return ops_[id];
}
Op& Program::op(Id id) { return const_cast<Op&>(std::as_const(*this).op(id)); }

const SegmentData& Program::segment(Id id) const {
  require(id < segments_.size(), "no segment ", id);
  return segments_[id];
}
SegmentData& Program::segment(Id id) { return const_cast<SegmentData&>(std::as_const(*this).segment(id)); }

std::vector<Id> Program::parameters() const {
  std::vector<Id> list;
  for (Id id = 0; id < value_count(); ++id)
    if (values_[id].role == Role::parameter) list.push_back(id);
  return list;
}

std::vector<Id> Program::inputs() const {
  std::vector<Id> list;
  for (Id id = 0; id < value_count(); ++id)
    if (values_[id].role == Role::input) list.push_back(id);
  return list;
}

std::vector<Id> Program::runtimes() const {
  std::vector<Id> list;
  for (Id id = 0; id < value_count(); ++id)
    if (values_[id].role == Role::runtime) list.push_back(id);
  return list;
}

std::vector<Id> Program::tallies() const {
  std::vector<Id> list = runtimes();
  std::erase_if(list, [&](Id id) { return !values_[id].tally; });
  return list;
}

Id Program::find_runtime(std::string_view name) const {
  for (Id id : runtimes())
    if (values_[id].name == name) return id;
  return none;
}

}  // namespace prun
