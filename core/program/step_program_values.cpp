// Implements class Program: its values and segments, and what they may contain.
#include <algorithm>
#include <utility>

#include "base/narrow.hpp"
#include "base/require.hpp"
#include "base/saturated.hpp"
#include "program/step_program.hpp"

namespace prun {

Id Program::add_segment(std::string_view name, std::int64_t repeat) {
  if (name.empty() || repeat < 1)
    throw_error(ErrorCode::bad_input, "segment '", name, "' needs a name and at least one repetition, not ",
                repeat);
  for (const SegmentData& other : segments_)
    if (other.name == name) throw_error(ErrorCode::bad_input, "there are two segments '", name, "'");
  SegmentData segment;
  segment.name = name;
  segment.repeat = repeat;
  segments_.push_back(std::move(segment));
  return static_cast<Id>(segments_.size() - 1);
}

Id Program::add_value(Value value) {
  require(value.dims.size() <= max_dims, "value '", value.name, "' has more than ", max_dims, " dimensions");
  constexpr std::int64_t most_elements = std::int64_t{1} << 52;  // most elements whose bytes can be added
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < value.dims.size(); ++i) {
    const Dim& dim = value.dims[i];
    if (dim.extent < 1)
      throw_error(ErrorCode::bad_input, "value '", value.name, "': dimension '", dim.name.view(), "' is ",
                  dim.extent);
    elements = saturated_product(static_cast<std::uint64_t>(elements), static_cast<std::size_t>(dim.extent));
    if (elements > most_elements)
      throw_error(ErrorCode::bad_input, "value '", value.name, "' has more than 2^52 elements");
    for (std::size_t j = 0; j < i; ++j)
      if (value.dims[j].name == dim.name)
        throw_error(ErrorCode::bad_input, "value '", value.name, "' has two dimensions named '",
                    dim.name.view(), "'; rename one, placement goes by name");
  }
  const Id id = value_count();
  segment(value.segment).values.push_back(id);
  values_.push_back(std::move(value));
  return id;
}

Id Program::add_parameter(Id segment_id, const ParameterSpec& spec) {
  for (Id other : segment(segment_id).values)
    if (values_[other].role == Role::parameter && values_[other].name == spec.name.view())
      throw_error(ErrorCode::bad_input, "segment '", segment(segment_id).name, "' has two parameters '",
                  spec.name.view(), "'");
  Value value;
  value.name = spec.name.view();
  value.role = Role::parameter;
  value.dtype = precision_.compute;
  value.dims.assign(spec.dims.begin(), spec.dims.end());
  value.segment = segment_id;
  value.init = spec.init;
  value.decay = spec.decay;
  value.added_by = writer_;
  return add_value(std::move(value));
}

void Program::set_matrices(Id parameter, const Matrices& matrices) {
  Value& value = this->value(parameter);
  if (value.role != Role::parameter)
    throw_error(ErrorCode::bad_input, "'", value.name, "' is no parameter, it is not made of matrices");
  const auto rank = narrow<std::int32_t>(value.dims.size());
  if (matrices.batch < 0 || matrices.columns < 1 || matrices.batch + matrices.columns >= rank)
    throw_error(ErrorCode::bad_input, "parameter '", value.name, "' has ", rank, " dimensions, of which ",
                matrices.batch, " are to number matrices and ", matrices.columns,
                " columns; at least one each is left for rows and is columns");
  std::int64_t before = 0;
  for (const std::int64_t cut : matrices.cuts) {
    const Dim& dim = value.dims[static_cast<std::size_t>(matrices.batch)];
    if (cut != 0 && (cut <= before || cut >= dim.extent || before < 0))
      throw_error(ErrorCode::bad_input, "parameter '", value.name, "': dimension '", dim.name.view(), "' of ",
                  dim.extent, " is to be cut at ", cut, "; cuts grow, and leave something on either side");
    before = cut == 0 ? -1 : cut;
  }
  value.matrices = matrices;
}

Id Program::add_tally(Id segment_id, std::string_view name, std::span<const Dim> dims) {
  Value value;
  value.name = segment(segment_id).name + "." + std::string(name);
  if (find_runtime(value.name) != none)
    throw_error(ErrorCode::bad_input, "there are two sums '", value.name, "'");
  value.role = Role::runtime;
  value.dtype = DType::f64;
  value.dims = {{"layer", segment(segment_id).repeat}};
  value.dims.insert(value.dims.end(), dims.begin(), dims.end());
  value.segment = step_segment();
  value.tally = true;
  return add_value(std::move(value));
}

Id Program::use_parameter(Id segment_id, Id parameter) {
  const Value& value = this->value(parameter);
  if (value.role != Role::parameter)
    throw_error(ErrorCode::bad_input, "'", value.name, "' is no parameter, it cannot be tied");
  for (Id id : {value.segment, segment_id})
    if (segment(id).repeat != 1)
      throw_error(ErrorCode::bad_input, "parameter '", value.name, "' cannot be tied across segment '",
                  segment(id).name, "', which repeats");
  return parameter;
}

Id Program::input(Id, std::string_view name) {
  for (Id id : inputs())
    if (values_[id].name == name) return id;
  throw_error(ErrorCode::bad_input, "there is no input '", name, "'; there are tokens, targets and samples");
}

Id Program::runtime(std::string_view name) {
  if (const Id known = find_runtime(name); known != none) return known;
  Value value;
  value.name = name;
  value.role = Role::runtime;
  value.dtype = DType::f64;
  value.segment = step_segment();
  return add_value(std::move(value));
}

Id Program::incoming(Id id) {
  if (segment(id).incoming != none) return segment(id).incoming;
  require(id > 1, "segment '", segment(id).name,
          "' is the first of the chain, nothing comes in; begin it with tokens()");
  const Id before = segment(id - 1).outgoing;
  if (before == none)
    throw_error(ErrorCode::bad_input, "segment '", segment(id).name, "' wants what '", segment(id - 1).name,
                "' hands on, but that has no outgoing value yet");
  Value copy;
  copy.name = "in";
  copy.dtype = value(before).dtype;
  copy.dims = value(before).dims;
  copy.segment = id;
  return segment(id).incoming = add_value(std::move(copy));
}

void Program::set_outgoing(Id id, Id value_id) {
  const Value& out = value(value_id);
  if (out.segment != id || out.role != Role::activation)
    throw_error(ErrorCode::bad_input, "segment '", segment(id).name,
                "' can hand on only a result of its own");
  if (segment(id).repeat > 1 && segment(id).incoming != none) {
    const Value& in = value(segment(id).incoming);
    if (in.dims != out.dims || in.dtype != out.dtype)
      throw_error(ErrorCode::bad_input, "segment '", segment(id).name,
                  "' repeats, so what it hands on must have the shape of what comes in");
  }
  segment(id).outgoing = value_id;
}

void Program::carry(Id id, Id value_id) {
  const Value& value = this->value(value_id);
  if (value.segment != id || value.role != Role::activation)
    throw_error(ErrorCode::bad_input, "segment '", segment(id).name, "' can carry only a result of its own");
  if (segment(id).repeat != 1)
    throw_error(ErrorCode::bad_input, "segment '", segment(id).name, "' repeats, so '", value.name,
                "' would be as many values as there are layers; carry one of a segment that does not");
  if (!is_carried(value_id)) carried_.push_back({value_id, none});
}

bool Program::is_carried(Id value) const {
  return std::any_of(carried_.begin(), carried_.end(),
                     [&](const CarriedValue& carried) { return carried.value == value; });
}

bool Program::is_carried_gradient(Id value) const {
  return value != none && std::any_of(carried_.begin(), carried_.end(),
                                      [&](const CarriedValue& carried) { return carried.gradient == value; });
}

void Program::forget_value(Id id) { std::erase(segment(value(id).segment).values, id); }

}  // namespace prun
