#include "placement/bucket_values.hpp"

#include "program/gathered_codes.hpp"

namespace prun {

void lay_in_parts(const Program& program, const Bucket& bucket, Value& value) {
  value.placement.resize(program.mesh().size());
  for (const AxisId axis : axes_of(bucket.axis)) value.placement[axis] = AxisPlacement::sharded("packed");
}

void BucketValues::lay_side_by_side(const std::vector<Id>& members, bool in_squares) {
  const auto rounded = [](std::int64_t elements, std::int64_t grain) {
    return (elements + grain - 1) / grain * grain;
  };
  for (const Id id : members) {
    bucket_.parameters.push_back(id);
    bucket_.offsets.push_back(bucket_.elements);
    const std::int64_t room = in_squares ? gathered_squares_of(program_, id).value().bytes() : 0;
    bucket_.elements += rounded(std::max(program_.local_elements(id), room), bucket_grain);
  }
  bucket_.elements = rounded(bucket_.elements, std::max(packing_.parts(bucket_), summands_) * bucket_grain);
}

Id BucketValues::add_flat(const char* name, Role role, DType type, bool own) {
  const std::int64_t parts = packing_.parts(bucket_);
  Value value;
  value.name = detail::concat("bucket.", number_, ".", name);
  value.role = role;
  value.dtype = type;
  value.segment = bucket_.segment;
  value.bucket = number_;
  value.dims = own || parts == 1 ? std::vector<Dim>{{"packed", bucket_.elements}}
                                 : std::vector<Dim>{{"parts", parts}, {"packed", bucket_.elements / parts}};
  if (own)
    lay_in_parts(program_, bucket_, value);
  else
    value.placement.resize(program_.mesh().size());
  return program_.add_value(std::move(value));
}

Id BucketValues::add_own(const char* name, Id whole, bool kept) {
  const Id own = add_flat(name, kept ? Role::state : Role::view, program_.value(whole).dtype, true);
  if (!kept) program_.value(own).view = {whole, 0, bucket_.axis};
  return own;
}

void BucketValues::add_parameters() {
  bucket_.all_parameters = add_flat("parameters", Role::view, program_.precision().compute, false);
  program_.value(bucket_.all_parameters).lifetime =
      bucket_.kept.parameters ? ValueLifetime::just_in_time : ValueLifetime::persistent;
  for (std::size_t m = 0; m < bucket_.parameters.size(); ++m) {
    Value& member = program_.value(bucket_.parameters[m]);
    member.bucket = number_;
    member.view = {bucket_.all_parameters, bucket_.offsets[m]};
  }
  bucket_.own_parameters = add_own("parameters.own", bucket_.all_parameters, bucket_.kept.parameters);
}

void BucketValues::add_state() {
  const Precision& precision = program_.precision();
  bucket_.all_gradients = add_flat("gradients", Role::view, precision.gradient, false);
  program_.value(bucket_.all_gradients).lifetime =
      bucket_.kept.gradients ? ValueLifetime::unreduced : ValueLifetime::step;
  for (std::size_t m = 0; m < bucket_.parameters.size(); ++m) {
    Value& gradient = program_.value(program_.value(bucket_.parameters[m]).gradient);
    gradient.bucket = number_;
    gradient.view = {bucket_.all_gradients, bucket_.offsets[m]};
  }
  bucket_.own_gradients = add_own("gradients.own", bucket_.all_gradients, bucket_.kept.gradients);
  if (bucket_.summed_in_update) lay_in_rows();
  if (packing_.kept.gradients && packing_.travels() == precision.gradient)
    bucket_.own_sums = add_own("sums.own", bucket_.all_gradients, false);
  add_padding();
  if (precision.has_master()) bucket_.master = add_flat("master", Role::state, precision.kept_master(), true);
  const Value first = program_.value(bucket_.parameters.front());
  for (const Id id : first.states) {
    const Value state = program_.value(id);
    const std::string name = state.name.substr(first.name.size() + 1);
    if (!state.own_shape) bucket_.states.push_back(add_flat(name.c_str(), Role::state, state.dtype, true));
  }
  for (const Id id : first.scales) bucket_.scales.push_back(id == none ? none : add_scales(first, id));
}

// Makes a row for each rank's part of the bucket or, on a rank alone, for each summand.
void BucketValues::lay_in_rows() {
  for (const Id id : bucket_.parameters)  // each rank has its own, which must not be summed
    for (AxisPlacement& lies : program_.value(program_.value(id).gradient).placement)
      if (lies.is_partial()) lies = AxisPlacement::replicated();
  const bool alone = program_.mesh().extent(*bucket_.summed_in_update) == 1;
  for (const Id id : {bucket_.all_gradients, bucket_.own_gradients}) {
    if (alone && id == bucket_.all_gradients && bucket_.kept.gradients) continue;
    program_.value(id).dims =
        alone ? std::vector<Dim>{{"summands", summands_}, {"packed", bucket_.elements}}
              : std::vector<Dim>{{"parts", summands_}, {"packed", bucket_.elements / summands_}};
  }
}

// Adds one scale for each block of the bucket: parts and members begin with a block.
Id BucketValues::add_scales(const Value& parameter, Id of_one) {
  const Value one = program_.value(of_one);
  const Id flat = add_flat(one.name.substr(parameter.name.size() + 1).c_str(), Role::state, one.dtype, true);
  program_.value(flat).dims.front().extent /= one.block;
  program_.value(flat).block = one.block;
  return flat;
}

void BucketValues::add_padding() {
  for (std::size_t m = 0; m < bucket_.parameters.size(); ++m) {
    const std::int64_t begin = bucket_.offsets[m] + program_.local_elements(bucket_.parameters[m]);
    const bool last = m + 1 == bucket_.parameters.size();
    const std::int64_t end = last ? bucket_.elements : bucket_.offsets[m + 1];
    if (begin == end) continue;
    Value padding = program_.value(bucket_.all_gradients);
    padding.name = detail::concat("bucket.", number_, ".padding.", m);
    padding.dims = {{"packed", end - begin}};
    padding.lifetime.reset();
    padding.view = {bucket_.all_gradients, begin};
    program_.add_value(std::move(padding));
  }
}

void BucketValues::forget_single_state() {
  const auto is_kept = [&](Id state) { return program_.value(state).own_shape; };
  for (const Id id : bucket_.parameters) {
    Value& parameter = program_.value(id);
    if (parameter.master != none) program_.forget_value(parameter.master);
    for (const Id state : parameter.states)
      if (!is_kept(state)) program_.forget_value(state);
    for (const Id scale : parameter.scales)
      if (scale != none) program_.forget_value(scale);
    parameter.master = none;
    std::erase_if(parameter.states, [&](Id state) { return !is_kept(state); });
  }
}

}  // namespace prun
