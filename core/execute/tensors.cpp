#include "execute/tensors.hpp"

#include <algorithm>

namespace prun {
namespace {

// The own part of a bucket's flat range, cut to one member.
Held cut(const Program& program, const Bucket& bucket, Id parameter, std::int64_t coordinate, Id own) {
  const auto member = static_cast<std::size_t>(
      std::find(bucket.parameters.begin(), bucket.parameters.end(), parameter) - bucket.parameters.begin());
  const std::int64_t parts = program.mesh().extent(bucket.axis);
  const std::int64_t size = bucket.elements / parts, first = coordinate * size,
                     offset = bucket.offsets[member];
  const std::int64_t begin = std::max(first, offset),
                     end = std::min(first + size, offset + program.local_elements(parameter));
  if (begin >= end) return {};
  return {own, program.value(own).dtype, begin - first, begin - offset, end - begin};
}

}  // namespace

std::vector<Stretch> stretches(const Program& program, Id id, std::int64_t rank) {
  const std::vector<Dim>& whole = program.value(id).dims;
  const std::vector<Dim> part = program.local_dims(id);
  const std::vector<std::int64_t> starts = program.starts(id, rank);
  // Everything from the last split dimension on is consecutive.
  std::size_t inner = 0;
  for (std::size_t d = 0; d < whole.size(); ++d)
    if (part[d].extent != whole[d].extent) inner = d;
  std::int64_t run = 1, rows = 1;
  for (std::size_t d = inner; d < whole.size(); ++d) run *= part[d].extent;
  for (std::size_t d = 0; d < inner; ++d) rows *= part[d].extent;
  std::vector<Stretch> list;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t index = row, at = 0, stride = 1;
    for (std::size_t d = whole.size(); d-- > 0;) {
      const std::int64_t within = d >= inner ? 0 : index % part[d].extent;
      if (d < inner) index /= part[d].extent;
      at += (starts[d] + within) * stride;
      stride *= whole[d].extent;
    }
    list.push_back({row * run, at, run});
  }
  return list;
}

Held held(const Assembly& assembly, Id id, Kept kept) {
  const Program& program = assembly.program();
  const Value& parameter = program.value(id);
  const auto all_of = [&](Id value) {
    return value == none ? Held{} : Held{value, program.value(value).dtype, 0, 0, program.local_elements(id)};
  };
  if (parameter.bucket < 0)
    return all_of(kept == Kept::parameter  ? id
                  : kept == Kept::gradient ? parameter.gradient
                                           : parameter.master);
  const Bucket& bucket = program.buckets()[static_cast<std::size_t>(parameter.bucket)];
  const std::int64_t coordinate = program.mesh().coordinate(assembly.rank(), bucket.axis);
  if (kept == Kept::parameter && !bucket.kept.parameters) return all_of(id);
  const Id value = kept == Kept::parameter  ? bucket.own_parameters
                   : kept == Kept::gradient ? bucket.own_gradients
                                            : bucket.master;
  return value == none ? Held{} : cut(program, bucket, id, coordinate, value);
}

}  // namespace prun
