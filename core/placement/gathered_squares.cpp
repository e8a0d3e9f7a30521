#include "placement/gathered_squares.hpp"

#include "ops/base_ops.hpp"
#include "program/gathered_codes.hpp"

namespace prun {

// The members themselves lie nowhere.
void GatheredSquares::add(PackedBucket& bucket) {
  std::vector<Fp8Squares> members;
  std::vector<Id> squares;
  for (const Id parameter : bucket.parameters) {
    members.push_back(gathered_squares_of(program_, parameter).value());
    squares.push_back(read_gathered_codes(program_, parameter));
    program_.value(squares.back()).bucket = program_.value(parameter).bucket;
    program_.value(parameter).view.reset();
  }
  program_.value(bucket.all_parameters).lifetime.reset();
  const Id peaks = add_peaks(bucket, members);
  bucket.own_codes = add_codes(bucket.own_parameters, "codes.own", Role::fetched, ValueLifetime::persistent);
  bucket.codes = add_codes(bucket.all_parameters, "codes", Role::view, ValueLifetime::just_in_time);
  for (std::size_t m = 0; m < squares.size(); ++m)
    program_.value(squares[m]).view = {bucket.codes, bucket.offsets[m]};
  renew(bucket, members, bucket.own_codes, peaks);
}

Id GatheredSquares::add_peaks(const Bucket& bucket, std::span<const Fp8Squares> members) {
  Value peaks;
  peaks.name = detail::concat("bucket.", program_.value(bucket.own_parameters).bucket, ".peaks");
  peaks.role = Role::fetched;
  peaks.segment = bucket.segment;
  peaks.bucket = program_.value(bucket.own_parameters).bucket;
  peaks.lifetime = ValueLifetime::persistent;
  peaks.placement.assign(program_.mesh().size(), AxisPlacement::replicated());
  peaks.dims = {{"squares", 0}};
  for (const Fp8Squares& member : members) peaks.dims.front().extent += member.across() * member.down();
  return program_.add_value(std::move(peaks));
}

// Appends what makes a rank's codes. Padding is cleared with them: it travels too.
void GatheredSquares::renew(const Bucket& bucket, std::span<const Fp8Squares> members, Id codes, Id peaks) {
  const auto each_member = [&](const char* kind, const std::vector<Id>& operands, Id before) {
    std::int64_t place = 0;
    for (std::size_t m = 0; m < members.size(); ++m) {
      const AttrValue attrs[] = {{"first", static_cast<double>(bucket.offsets[m])},
                                 {"rows", static_cast<double>(members[m].columns)},
                                 {"columns", static_cast<double>(members[m].rows)},
                                 {"place", static_cast<double>(place)},
                                 {"elements", static_cast<double>(bucket.elements)}};
      program_.add_op(bucket.segment, FunctionKind::renew, Part::input, kind, operands, attrs, before);
      place += members[m].across() * members[m].down();
    }
  };
  const auto clear = [&](Id value, Id before) {
    program_.add_op(bucket.segment, FunctionKind::renew, Part::input, base_ops::zero, {value}, {}, before);
  };
  Exchanges& known = exchanges_[bucket.segment];
  clear(peaks, known.first);
  each_member(base_ops::peak_fp8_squares, {bucket.own_parameters, peaks}, known.first);
  const AttrValue axis = axis_attr(bucket.axis);
  const Id taken =
      program_.add_op(bucket.segment, FunctionKind::renew, Part::input, base_ops::all_reduce_max_update,
                      {peaks}, std::span(&axis, 1), known.behind);
  if (known.first == none) known.first = taken;
  clear(codes, none);
  if (known.behind == none) known.behind = program_.segment(bucket.segment).ops(FunctionKind::renew).back();
  each_member(base_ops::encode_fp8_part, {bucket.own_parameters, peaks, codes}, none);
}

// Adds a buffer that has a byte for each element of another.
Id GatheredSquares::add_codes(Id like, const char* name, Role role, ValueLifetime lifetime) {
  Value codes = program_.value(like);
  codes.name = detail::concat("bucket.", codes.bucket, ".", name);
  codes.role = role;
  codes.dtype = DType::u8;
  codes.view.reset();
  codes.lifetime = lifetime;
  return program_.add_value(std::move(codes));
}

}  // namespace prun
