#include "placement/coded_exchanges.hpp"

#include <array>

#include "placement/flat_ranges.hpp"
#include "prun/block_codes.hpp"

namespace prun {
namespace {

AttrValue bits_attr(std::int64_t bits) { return {"bits", static_cast<double>(bits)}; }

std::array<AttrValue, 2> decode_attrs(std::int64_t bits, DType to) {
  return {bits_attr(bits), {"to", static_cast<double>(to)}};
}

// Checks that neighbours within a rank's part are neighbours in the tensor as far as the split dimension
// goes.
void check_keeps_blocks(const Program& program, Id parameter) {
  const Value& value = program.value(parameter);
  const std::string name = program.segment(value.segment).name + "." + value.name;
  if (value.part)
    throw_error(
        ErrorCode::unsupported, "parameter '", name, "' is a part of '", value.part->tensor,
        "', which travels in blocks of ", code_block,
        " of the whole tensor (precision.gather, precision.reduce); let the axis divide the groups of "
        "heads, or leave these keys out");
  const std::vector<Dim> local = program.local_dims(parameter);
  std::int64_t run = 1;
  for (std::size_t d = local.size(); d-- > 0;) {
    run *= local[d].extent;
    if (local[d].extent != value.dims[d].extent && run % code_block != 0)
      throw_error(ErrorCode::unsupported, "parameter '", name, "' travels in blocks of ", code_block,
                  " neighbours (precision.gather, precision.reduce), and ranks that split its dimension '",
                  value.dims[d].name.view(), "' have runs of ", run,
                  " of them; let fewer ranks split it, or leave these keys out");
  }
}

}  // namespace

bool comes_in_blocks(const Program& program, Id parameter) {
  const std::int64_t elements = program.value(parameter).elements();
  if (elements < code_least || elements % code_block != 0) return false;
  check_keeps_blocks(program, parameter);
  return true;
}

Id CodedExchanges::encode_gradients(const Bucket& bucket) {
  const AttrValue bits = bits_attr(program_.precision().reduce_bits);
  Id before = none;
  for (const Id op : program_.segment(bucket.segment).ops(FunctionKind::reduce))
    if (before == none && program_.op(op).exchange()) before = op;
  return program_.add_op_creating(bucket.segment, FunctionKind::reduce, Part::input, "encode",
                                  std::span(&bucket.all_gradients, 1), std::span(&bits, 1), before)[0];
}

Id CodedExchanges::swap_gradients(const Bucket& bucket, Id codes) {
  if (parts_ == 1) return codes;
  const AttrValue axis = axis_attr(bucket.axis);
  const Id summands =
      program_.add_op_creating(bucket.segment, FunctionKind::reduce, Part::input, "swap_summands",
                               std::span(&codes, 1), std::span(&axis, 1), none)[0];
  program_.value(summands).placement = in_parts(program_, bucket.axis);
  return summands;
}

void CodedExchanges::sum_gradients(const Bucket& bucket, Id summands, Id part) {
  program_.add_op(bucket.segment, FunctionKind::reduce, Part::input, parts_ == 1 ? "decode" : "sum_decoded",
                  {summands, part},
                  decode_attrs(program_.precision().reduce_bits, program_.value(part).dtype));
}

}  // namespace prun
