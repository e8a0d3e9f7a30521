#include "placement/parameter_gathers.hpp"

#include <algorithm>

#include "placement/flat_ranges.hpp"
#include "program/gathered_codes.hpp"
#include "prun/block_codes.hpp"

namespace prun {

void ParameterGathers::add(PackedBucket& bucket, Gathered how) {
  add_copy(bucket);
  if (how == Gathered::in_squares) return add_squares(bucket);
  if (how == Gathered::as_they_are) return gather(bucket, bucket.own_parameters, bucket.all_parameters);
  if (bucket.copy != none) travel_as(bucket, add_codes(bucket, bucket.copy, "copy.codes"));
  const Id own = add_codes(bucket, bucket.own_parameters, "codes.own");
  const bool is_alone = program_.mesh().extent(bucket.axis) == 1;
  const Id all = is_alone ? own : add_codes(bucket, bucket.all_parameters, "codes");
  program_.value(all).lifetime = ValueLifetime::just_in_time;
  lie_in_place(bucket, own, all);
  encode(bucket, bucket.copy == none ? FunctionKind::gather : FunctionKind::renew, bucket.own_parameters,
         own);
  if (!is_alone) gather(bucket, own, all);
  decode(bucket, all);
}

void ParameterGathers::travel_as(PackedBucket& bucket, Id codes) {
  program_.forget_value(bucket.copy);
  bucket.copy = codes;
  program_.value(codes).lifetime = ValueLifetime::persistent;
}

void ParameterGathers::lie_in_place(const PackedBucket& bucket, Id own, Id all) {
  if (bucket.copy != none)
    program_.value(own).view = {bucket.copy, 0, bucket.copied_from};
  else if (own != all)
    program_.value(own).view = {all, 0, bucket.axis};
}

// Ranks keep their own codes for the whole step, where there is a copy as their parts of it. The members
// themselves lie nowhere.
void ParameterGathers::add_squares(PackedBucket& bucket) {
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
  if (bucket.copy != none)
    travel_as(bucket, add_codes_of_squares(bucket, bucket.copy, "copy.codes", Role::fetched));
  const Id own = add_codes_of_squares(bucket, bucket.own_parameters, "codes.own", Role::fetched),
           all = add_codes_of_squares(bucket, bucket.all_parameters, "codes", Role::view);
  program_.value(all).lifetime = ValueLifetime::just_in_time;
  for (std::size_t m = 0; m < squares.size(); ++m) program_.value(squares[m]).view = {all, bucket.offsets[m]};
  if (bucket.copy != none)
    program_.value(own).view = {bucket.copy, 0, bucket.copied_from};
  else
    program_.value(own).lifetime = ValueLifetime::persistent;
  renew_squares(bucket, members, own, peaks);
  gather(bucket, own, all, true);
}

Id ParameterGathers::add_peaks(const Bucket& bucket, std::span<const Fp8Squares> members) {
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

// Appends what makes a rank's codes once a step. Padding is cleared with them: it travels too.
void ParameterGathers::renew_squares(const Bucket& bucket, std::span<const Fp8Squares> members, Id codes,
                                     Id peaks) {
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
    program_.add_op(bucket.segment, FunctionKind::renew, Part::input, "zero", {value}, {}, before);
  };
  Exchanges& known = exchanges_[{bucket.segment, FunctionKind::renew}];
  const Id first = known.first == none ? known.behind : known.first;
  clear(peaks, first);
  each_member("peak_fp8_squares", {bucket.own_parameters, peaks}, first);
  const AttrValue axis = axis_attr(bucket.axis);
  const Id taken = program_.add_op(bucket.segment, FunctionKind::renew, Part::input, "all_reduce_max_update",
                                   {peaks}, std::span(&axis, 1), known.behind);
  if (known.first == none) known.first = taken;
  clear(codes, none);
  if (known.behind == none) known.behind = program_.segment(bucket.segment).ops(FunctionKind::renew).back();
  each_member("encode_fp8_part", {bucket.own_parameters, peaks, codes}, none);
}

std::vector<AxisId> ParameterGathers::axes_with_copy(const Bucket& bucket) const {
  std::vector<AxisId> axes = axes_of(bucket.axis);
  std::erase_if(axes, [&](AxisId axis) {
    return std::find(copy_axes_.begin(), copy_axes_.end(), axis) == copy_axes_.end();
  });
  return axes;
}

// If all ranks that have parts have a copy among them, their parts are the copy.
void ParameterGathers::add_copy(PackedBucket& bucket) {
  const std::vector<AxisId> inner = axes_with_copy(bucket);
  std::vector<AxisId> outer = axes_of(bucket.axis);
  std::erase_if(outer,
                [&](AxisId axis) { return std::find(inner.begin(), inner.end(), axis) != inner.end(); });
  if (inner.empty() || outer.empty()) return;
  bucket.copied_from = folded(outer);
  const std::int64_t parts = program_.mesh().extent(bucket.copied_from);
  Value& all = program_.value(bucket.all_parameters);
  all.dims = {{"parts", parts}, {"packed", bucket.elements / parts}};
  Value copy = all;
  copy.name = detail::concat("bucket.", copy.bucket, ".copy");
  copy.role = Role::fetched;
  copy.lifetime = ValueLifetime::persistent;
  copy.placement = in_parts(program_, folded(inner));
  bucket.copy = program_.add_value(std::move(copy));
}

// Gathers from the rank's own part, by the copy if there is one: ranks have equal stretches of each of its
// parts.
// With `made`, the rank's own part is what a step makes: its exchange stands behind that.
void ParameterGathers::gather(const PackedBucket& bucket, Id own, Id all, bool made) {
  const auto along = [&](AxisId axis, int dim, bool direct) {
    return std::vector<AttrValue>{axis_attr(axis),
                                  {"dim", static_cast<double>(dim)},
                                  {"parts", static_cast<double>(program_.mesh().extent(axis))},
                                  {"direct", direct ? 1.0 : 0.0}};
  };
  if (bucket.copy == none)
    return exchange(bucket, FunctionKind::gather, own, all, along(bucket.axis, 0, false));
  if (!made)
    exchange(bucket, FunctionKind::renew, own, bucket.copy, along(bucket.copied_from, 0, false));
  else
    program_.add_op(bucket.segment, FunctionKind::renew, Part::input, "all_gather", {own, bucket.copy},
                    along(bucket.copied_from, 0, false));
  exchange(bucket, FunctionKind::gather, bucket.copy, all, along(folded(axes_with_copy(bucket)), 1, true));
}

void ParameterGathers::exchange(const Bucket& bucket, FunctionKind function, Id from, Id to,
                                std::span<const AttrValue> attrs) {
  Exchanges& known = exchanges_[{bucket.segment, function}];
  const Id op =
      program_.add_op(bucket.segment, function, Part::input, "all_gather", {from, to}, attrs, known.behind);
  if (known.first == none) known.first = op;
}

void ParameterGathers::encode(const Bucket& bucket, FunctionKind function, Id from, Id to) {
  const Exchanges& known = exchanges_[{bucket.segment, function}];
  const Id before = known.first == none ? known.behind : known.first;
  const AttrValue attr{"bits", static_cast<double>(bits())};
  const bool fp8 = program_.precision().gather_fp8;
  program_.add_op(bucket.segment, function, Part::input, fp8 ? "encode_fp8" : "encode", {from, to},
                  std::span(&attr, fp8 ? 0 : 1), before);
}

void ParameterGathers::decode(const Bucket& bucket, Id codes) {
  const DType type = program_.value(bucket.all_parameters).dtype;
  const AttrValue attrs[] = {{"to", static_cast<double>(type)}, {"bits", static_cast<double>(bits())}};
  const bool fp8 = program_.precision().gather_fp8;
  const Id op =
      program_.add_op(bucket.segment, FunctionKind::gather, Part::input, fp8 ? "decode_fp8" : "decode",
                      {codes, bucket.all_parameters}, std::span(attrs, fp8 ? 1 : 2));
  Exchanges& known = exchanges_[{bucket.segment, FunctionKind::gather}];
  if (known.behind == none) known.behind = op;
}

// Adds a range that has a byte for each element of another.
Id ParameterGathers::add_codes_of_squares(const Bucket& bucket, Id like, const char* name, Role role) {
  Value codes = program_.value(like);
  codes.name = detail::concat("bucket.", codes.bucket, ".", name);
  codes.role = role;
  codes.dtype = DType::u8;
  codes.segment = bucket.segment;
  codes.view.reset();
  codes.lifetime.reset();
  return program_.add_value(std::move(codes));
}

Id ParameterGathers::add_codes(const Bucket& bucket, Id like, const char* name) {
  Value codes = program_.value(like);
  codes.name = detail::concat("bucket.", codes.bucket, ".", name);
  if (codes.role != Role::fetched) codes.role = Role::activation;
  codes.dtype = DType::u8;
  codes.segment = bucket.segment;
  codes.view.reset();
  codes.lifetime.reset();
  Dim& packed = codes.dims.back();
  packed.extent = packed.extent / code_block * code_block_bytes(bits());
  return program_.add_value(std::move(codes));
}

}  // namespace prun
