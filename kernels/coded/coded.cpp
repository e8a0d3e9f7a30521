#include <vector>

#include "base/require.hpp"
#include "prun/block_codes.hpp"
#include "prun/ops/coded.hpp"

namespace prun::ops {
namespace {

// Returns how many bytes a block of the op takes.
std::int64_t block_bytes(std::int64_t bits, const char* op) {
  require(bits == 8 || bits == 4 || bits == 1, op, ": `bits` is 8, 4 or 1");
  return code_block_bytes(bits);
}

// Returns the decoded shape; `to` is the type, as an attribute has it.
OperandShape decoded(const OperandShape& codes, const char* op, std::int64_t bytes, std::int64_t to) {
  OperandShape x = codes;
  require(x.dtype == DType::u8 && x.rank > 0 && x.dims[x.rank - 1].extent % bytes == 0, op,
          " takes u8, whose last dimension comes in blocks of ", bytes, " bytes");
  require(to >= 0 && to <= 7 && is_float(static_cast<DType>(to)), op,
          ": `to` is 0 (fp64), 1 (fp32), 2 (bf16) or 7 (fp16)");
  x.dtype = static_cast<DType>(to);
  x.dims[x.rank - 1].extent = x.dims[x.rank - 1].extent / bytes * code_block;
  return x;
}

// Sets `codes` to the codes of x.
template <class Op>
void encode_rule(RuleOf<Op> s, std::int64_t bytes) {
  OperandShape x = s["x"];
  require(is_float(x.dtype) && x.rank > 0 && x.dims[x.rank - 1].extent % code_block == 0,
          "encode takes numbers whose last dimension comes in blocks of ", code_block);
  x.dims[x.rank - 1].extent = x.dims[x.rank - 1].extent / code_block * bytes;
  s.output("codes", DType::u8, x.dims, x.rank);
  s.whole("x", x.rank - 1, x.rank);
}

template <class Op>
void decode_rule(RuleOf<Op> s, const OperandShape& y) {
  s.output("y", y.dtype, y.dims, y.rank);
  s.whole("y", y.rank - 1, y.rank);
}

}  // namespace

void Encode::rule(RuleOf<Encode> s) { encode_rule(s, block_bytes(s.integer("bits"), kind)); }

void EncodeOnward::rule(RuleOf<EncodeOnward> s) {
  encode_rule(s, block_bytes(s.integer("bits"), kind));
  require(s["error"].dtype == OpShape::statistics(s["x"].dtype),
          "encode_onward keeps an error in the type that it computes in");
}

void Decode::rule(RuleOf<Decode> s) {
  decode_rule(s, decoded(s["codes"], kind, block_bytes(s.integer("bits"), kind), s.integer("to")));
}

void EncodeFp8::rule(RuleOf<EncodeFp8> s) { encode_rule(s, code_block_bytes(bits_of(Codes::e4m3))); }

void DecodeFp8::rule(RuleOf<DecodeFp8> s) {
  decode_rule(s, decoded(s["codes"], kind, code_block_bytes(bits_of(Codes::e4m3)), s.integer("to")));
}

void SumDecoded::rule(RuleOf<SumDecoded> s) {
  const OperandShape x = decoded(s["codes"], kind, block_bytes(s.integer("bits"), kind), s.integer("to"));
  require(x.rank > 1, "sum_decoded takes summands along a dimension of their own, in front");
  s.output("y", x.dtype, x.dims + 1, x.rank - 1);
  s.sum("codes", 0, 1);
  s.whole("y", x.rank - 2, x.rank - 1);
}

void SwapSummands::rule(RuleOf<SwapSummands> s) {
  OperandShape x = s["blocks"];
  require(x.rank == 2, "swap_summands takes a block for each rank, of one dimension");
  x.dims[0].name = Name("summands");
  x.dims[1].extent *= x.dims[0].extent;
  s.output("summands", x.dtype, x.dims, x.rank);
  s.whole("summands", 1, 2);
  s.pass_partial({"blocks"});
}

}  // namespace prun::ops

namespace prun {

std::vector<OpDef> coded_ops() {
  using namespace ops;
  return {op_def<Encode>(),       op_def<EncodeOnward>(), op_def<Decode>(),   op_def<SumDecoded>(),
          op_def<SwapSummands>(), op_def<EncodeFp8>(),    op_def<DecodeFp8>()};
}

}  // namespace prun
