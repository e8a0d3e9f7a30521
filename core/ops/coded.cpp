// Defines ops on numbers that travel between ranks as codes, in blocks of 128 neighbours that have a scale
// each (prun/block_codes.hpp): all ranks that decode them get the same numbers.
#include <vector>

#include "base/require.hpp"
#include "prun/block_codes.hpp"
#include "prun/op.hpp"

namespace prun {
namespace {

constexpr AttrDef bits_attr[] = {int_attr("bits", 8)};
constexpr AttrDef decode_attrs[] = {int_attr("bits", 8), int_attr("to", 1)};

// Returns how many bytes a block of the op takes.
std::int64_t block_bytes(const OpShape& s, const char* op) {
  require(s.attrs[0].i == 8 || s.attrs[0].i == 4 || s.attrs[0].i == 1, op, ": `bits` is 8, 4 or 1");
  return code_block_bytes(s.attrs[0].i);
}

// Returns the decoded shape; `to` is the type, as an attribute has it.
OperandShape decoded(const OpShape& s, const char* op, std::int64_t bytes, std::int64_t to) {
  OperandShape x = s.operand[0];
  require(x.dtype == DType::u8 && x.rank > 0 && x.dims[x.rank - 1].extent % bytes == 0, op,
          " takes u8, whose last dimension comes in blocks of ", bytes, " bytes");
  require(to >= 0 && to <= 7 && is_float(static_cast<DType>(to)), op,
          ": `to` is 0 (fp64), 1 (fp32), 2 (bf16) or 7 (fp16)");
  x.dtype = static_cast<DType>(to);
  x.dims[x.rank - 1].extent = x.dims[x.rank - 1].extent / bytes * code_block;
  return x;
}

// Sets operand `codes` to the codes of x.
void encode_rule(OpShape& s, int codes, std::int64_t bytes) {
  OperandShape x = s.operand[0];
  require(is_float(x.dtype) && x.rank > 0 && x.dims[x.rank - 1].extent % code_block == 0,
          "encode takes numbers whose last dimension comes in blocks of ", code_block);
  x.dims[x.rank - 1].extent = x.dims[x.rank - 1].extent / code_block * bytes;
  s.output(codes, DType::u8, x.dims, x.rank);
  s.whole(0, x.rank - 1, x.rank);
}

void decode_rule(OpShape& s, const OperandShape& y) {
  s.output(1, y.dtype, y.dims, y.rank);
  s.whole(1, y.rank - 1, y.rank);
}

struct Encode {
  static constexpr const char* kind = "encode";
  static constexpr const char* help =
      "x in blocks of 128 neighbours, each a scale in fp32 and codes of `bits` bits";
  static constexpr OperandDef operands[] = {{"x"}, {"codes", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = bits_attr;
  static void rule(OpShape& s) { encode_rule(s, 1, block_bytes(s, kind)); }
};

struct EncodeOnward {
  static constexpr const char* kind = "encode_onward";
  static constexpr const char* help =
      "x + error, encoded; error = what the codes leave out of that, to come with the next numbers, unless "
      "keep is 0";
  static constexpr OperandDef operands[] = {
      {"x"}, {"error", Access::update}, {"keep"}, {"codes", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = bits_attr;
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) {
    encode_rule(s, 3, block_bytes(s, kind));
    require(s.operand[1].dtype == OpShape::statistics(s.operand[0].dtype),
            "encode_onward keeps an error in the type that it computes in");
  }
};

struct Decode {
  static constexpr const char* kind = "decode";
  static constexpr const char* help =
      "the numbers that `codes` stand for (to: 0 fp64, 1 fp32, 2 bf16, 7 fp16)";
  static constexpr OperandDef operands[] = {{"codes"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = decode_attrs;
  static void rule(OpShape& s) { decode_rule(s, decoded(s, kind, block_bytes(s, kind), s.attrs[1].i)); }
};

struct EncodeFp8 {
  static constexpr const char* kind = "encode_fp8";
  static constexpr const char* help =
      "x in blocks of 128 neighbours, each a scale, a power of two, in fp32 and codes in e4m3";
  static constexpr OperandDef operands[] = {{"x"}, {"codes", Access::write}};
  static void rule(OpShape& s) { encode_rule(s, 1, code_block_bytes(bits_of(Codes::e4m3))); }
};

struct DecodeFp8 {
  static constexpr const char* kind = "decode_fp8";
  static constexpr const char* help =
      "the numbers that `codes` in e4m3 stand for (to: 0 fp64, 1 fp32, 2 bf16, 7 fp16)";
  static constexpr OperandDef operands[] = {{"codes"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("to", 1)};
  static void rule(OpShape& s) {
    decode_rule(s, decoded(s, kind, code_block_bytes(bits_of(Codes::e4m3)), s.attrs[0].i));
  }
};

// Sums rank by rank, so that the sum is the same wherever it is taken.
struct SumDecoded {
  static constexpr const char* kind = "sum_decoded";
  static constexpr const char* help =
      "the sum over the first dimension, in its order, of what `codes` stand for";
  static constexpr OperandDef operands[] = {{"codes"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[2] = decode_attrs;
  static void rule(OpShape& s) {
    const OperandShape x = decoded(s, kind, block_bytes(s, kind), s.attrs[1].i);
    require(x.rank > 1, "sum_decoded takes summands along a dimension of their own, in front");
    s.output(1, x.dtype, x.dims + 1, x.rank - 1);
    s.sum(0, 0, 1);
    s.whole(1, x.rank - 2, x.rank - 1);
  }
};

// Exchanges summands: what reduce_scatter would add up on the way arrives as it was sent.
struct SwapSummands {
  static constexpr const char* kind = "swap_summands";
  static constexpr const char* help =
      "each rank's summand of this coordinate's block: `blocks` as they are sent to it";
  static constexpr OperandDef operands[] = {{"blocks"}, {"summands", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("axis", 0)};
  static constexpr OpExchange exchange{CommKind::all_to_all};
  static void rule(OpShape& s) {
    OperandShape x = s.operand[0];
    require(x.rank == 2, "swap_summands takes a block for each rank, of one dimension");
    x.dims[0].name = Name("summands");
    x.dims[1].extent *= x.dims[0].extent;
    s.output(1, x.dtype, x.dims, x.rank);
    s.whole(1, 1, 2);
    s.pass_partial({0});
  }
};

}  // namespace

std::vector<OpDef> coded_ops() {
  return {op_def<Encode>(),       op_def<EncodeOnward>(), op_def<Decode>(),   op_def<SumDecoded>(),
          op_def<SwapSummands>(), op_def<EncodeFp8>(),    op_def<DecodeFp8>()};
}

}  // namespace prun
