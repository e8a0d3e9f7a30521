#include "placement/gradient_exchanges.hpp"

#include <array>

#include "placement/bucket_values.hpp"
#include "placement/coded_exchanges.hpp"

namespace prun {
namespace {

void add_op(Program& program, const Bucket& bucket, FunctionKind function, const char* kind,
            std::vector<Id> operands, std::span<const AttrValue> attrs = {}) {
  program.add_op(bucket.segment, function, Part::input, kind, std::move(operands), attrs);
}

std::array<AttrValue, 3> along(const Bucket& bucket, std::int64_t parts) {
  return {axis_attr(bucket.axis), {"dim", 0}, {"parts", static_cast<double>(parts)}};
}

}  // namespace

void GradientExchanges::add(std::span<const SummedBucket> summed) const {
  std::vector<Id> blocks, sums;
  for (const SummedBucket& each : summed) blocks.push_back(blocks_of(each.bucket));
  for (std::size_t b = 0; b < summed.size(); ++b) sums.push_back(scatter(summed[b].bucket, blocks[b]));
  for (std::size_t b = 0; b < summed.size(); ++b)
    if (packing_.sums_codes(summed[b].bucket)) sums[b] = sum_codes(summed[b].bucket, sums[b]);
  for (std::size_t b = 0; b < summed.size(); ++b) sum_behind(summed[b], sums[b]);
  for (std::size_t b = 0; b < summed.size(); ++b) keep(summed[b].bucket, sums[b]);
  for (const SummedBucket& each : summed) gather_updated(each.bucket);
}

// Returns what a rank has of the sum, as it travels.
Id GradientExchanges::blocks_of(const Bucket& bucket) const {
  const DType kept = program_.precision().gradient, travels = packing_.travels();
  if (packing_.sums_codes(bucket))
    return CodedExchanges(program_, packing_.parts(bucket)).encode_gradients(bucket);
  return travels == kept ? bucket.all_gradients : cast(bucket, bucket.all_gradients, kept, travels);
}

// Returns the rank's part of the sum: in its place within the blocks or, if these are of another type, a
// value of its own. With codes, it returns all ranks' summands of that part.
Id GradientExchanges::scatter(const PackedBucket& bucket, Id blocks) const {
  const std::int64_t parts = packing_.parts(bucket);
  if (packing_.sums_codes(bucket)) return CodedExchanges(program_, parts).swap_gradients(bucket, blocks);
  if (parts == 1) return part_of_sum(bucket);
  if (packing_.travels() == program_.precision().gradient) {
    const Id part = part_of_sum(bucket);
    add_op(program_, bucket, FunctionKind::reduce, "reduce_scatter", {blocks, part}, along(bucket, parts));
    return part;
  }
  const Id part =
      program_.add_op_creating(bucket.segment, FunctionKind::reduce, Part::input, "reduce_scatter",
                               std::span(&blocks, 1), along(bucket, parts), none)[0];
  lay_in_parts(program_, bucket, program_.value(part));
  return part;
}

Id GradientExchanges::sum_codes(const PackedBucket& bucket, Id summands) const {
  const Id part = part_of_sum(bucket);
  CodedExchanges(program_, packing_.parts(bucket)).sum_gradients(bucket, summands, part);
  return part;
}

// Has each rank sum its part: this is for codes, since each rank rounds its own summand.
void GradientExchanges::sum_behind(const SummedBucket& summed, Id part) const {
  for (const AxisId axis : summed.further_axes) {
    const AttrValue attr = axis_attr(axis);
    add_op(program_, summed.bucket, FunctionKind::reduce, "all_reduce_update", {part}, std::span(&attr, 1));
  }
}

void GradientExchanges::keep(const Bucket& bucket, Id sum) const {
  const DType kept = program_.precision().gradient, travels = packing_.travels();
  if (packing_.kept.gradients)
    add_op(program_, bucket, FunctionKind::reduce, "accumulate", {sum, bucket.own_gradients});
  else if (travels != kept && !packing_.sums_codes(bucket))
    add_op(program_, bucket, FunctionKind::reduce, "cast", {sum, bucket.own_gradients},
           cast_attrs(travels, kept));
}

void GradientExchanges::gather_updated(const PackedBucket& bucket) const {
  const std::int64_t parts = packing_.parts(bucket);
  if (!bucket.kept.parameters && parts > 1)
    add_op(program_, bucket, FunctionKind::update, "all_gather",
           {bucket.own_parameters, bucket.all_parameters}, along(bucket, parts));
}

// Returns the rank's part of the sum, which lies in its place within the blocks.
Id GradientExchanges::part_of_sum(const PackedBucket& bucket) const {
  return packing_.kept.gradients ? bucket.own_sums : bucket.own_gradients;
}

Id GradientExchanges::cast(const Bucket& bucket, Id id, DType from, DType to) const {
  return program_.add_op_creating(bucket.segment, FunctionKind::reduce, Part::input, "cast",
                                  std::span(&id, 1), cast_attrs(from, to), none)[0];
}

}  // namespace prun
