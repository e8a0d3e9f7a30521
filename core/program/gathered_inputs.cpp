#include "program/gathered_inputs.hpp"

#include <algorithm>
#include <optional>

#include "ops/base_ops.hpp"
#include "program/fp8_products.hpp"
#include "prun/block_codes.hpp"

namespace prun {
namespace {

bool gathers_values(const Program& program, Id id) {
  const Op& op = program.op(id);
  const Role role = program.value(op.operands.front()).role;
  return op.exchange() && op.exchange()->kind == CommKind::all_gather && role == Role::activation;
}

// Changes the gathers of one segment.
class SegmentGathers {
 public:
  SegmentGathers(Program& program, Id segment) : program_(program), segment_(segment) {}

  void run() {
    for (const FunctionKind function : microbatch_functions) {
      std::vector<Id> gathers = program_.segment(segment_).ops(function);
      std::erase_if(gathers, [&](Id op) { return !gathers_values(program_, op); });
      for (const Id gather : gathers) change(gather);
    }
  }

 private:
  struct Gather {
    Id exchange = none, unblock = none;  // none where what arrives lies as it is read
    Id part = none, whole = none;
  };

  std::vector<Id> readers_of(Id value) const {
    std::vector<Id> readers;
    for (const std::vector<Id>& function : program_.segment(segment_).functions)
      for (const Id id : function) {
        const Op& op = program_.op(id);
        for (std::size_t i = 0; i < op.operands.size(); ++i)
          if (op.operands[i] == value && op.access(i) != Access::write) readers.push_back(id);
      }
    return readers;
  }

  // Returns the gather with what brings its blocks in order, if that is all that reads them.
  std::optional<Gather> gather_by(Id exchange) const {
    const Op& op = program_.op(exchange);
    Gather gather{exchange, none, op.operands.front(), op.operands.back()};
    if (program_.attr(exchange, "direct") != 0) return gather;
    const std::vector<Id> readers = readers_of(gather.whole);
    if (readers.size() != 1 || !program_.op(readers[0]).is(base_ops::unblock) ||
        program_.op(readers[0]).function != op.function)
      return {};
    gather.unblock = readers[0];
    gather.whole = program_.op(readers[0]).operands.back();
    return gather;
  }

  bool is_handed_on(Id value) const {
    const SegmentData& segment = program_.segment(segment_);
    return value == segment.outgoing || value == segment.incoming_gradient || program_.is_carried(value) ||
           program_.is_carried_gradient(value);
  }

  // Returns the blocks in which all that reads a value multiplies it, in rows of its last dimension.
  std::optional<Fp8Blocks> blocks_of(Id value) const {
    std::optional<Fp8Blocks> blocks;
    const std::vector<Id> readers = readers_of(value);
    for (const Id id : readers) {
      if (!multiplies(id) || std::count(readers.begin(), readers.end(), id) != 1) return {};
      for (const Fp8Factor& factor : fp8_factors_of(program_, program_.op(id))) {
        if (factor.value != value) continue;
        if (factor.in_dims != 1 || (blocks && *blocks != factor.blocks)) return {};
        blocks = factor.blocks;
      }
      if (!blocks) return {};
    }
    return blocks;
  }

  // Says whether an op multiplies in fp8 in all layers.
  bool multiplies(Id id) const {
    const Op& op = program_.op(id);
    if (!op.def->in_blocks || program_.attr(id, "fp8") == 0) return false;
    for (const std::string_view some : {"fp8_from", "fp8_until"})
      if (op.has_attr(some) && program_.attr(id, some) != 0) return false;
    return true;
  }

  // Says whether blocks of a rank's part are those of the whole.
  bool keeps_blocks(Id part, Fp8Blocks blocks) const {
    const std::vector<Dim> local = program_.local_dims(part);
    const std::size_t rank = local.size();
    if (rank < 2 || local.back().extent != program_.value(part).dims.back().extent ||
        local.back().extent % fp8_block != 0)
      return false;
    return blocks == Fp8Blocks::rows ||
           (blocks == Fp8Blocks::squares && local[rank - 2].extent % fp8_block == 0);
  }

  void change(Id exchange) {
    const std::optional<Gather> gather = gather_by(exchange);
    if (!gather || is_handed_on(gather->whole) || !is_float(program_.value(gather->part).dtype)) return;
    const std::optional<Fp8Blocks> blocks = blocks_of(gather->whole);
    if (blocks && keeps_blocks(gather->part, *blocks)) travel_in_codes(*gather, *blocks);
  }

  void travel_in_codes(const Gather& gather, Fp8Blocks blocks) {
    const Op exchange = program_.op(gather.exchange);
    const Id last = gather.unblock == none ? gather.exchange : gather.unblock, before = behind(last);
    const Id own = add_codes(gather.part), arrived = add_codes(exchange.operands.back());
    program_.add_op(segment_, exchange.function, Part::input,
                    blocks == Fp8Blocks::rows ? base_ops::encode_fp8 : base_ops::encode_fp8_square_rows,
                    {gather.part, own}, {}, gather.exchange);
    replace(gather.exchange, {own, arrived});
    const Id codes = gather.unblock == none ? arrived : add_codes(gather.whole);
    if (gather.unblock != none) replace(gather.unblock, {arrived, codes});
    const AttrValue to{"to", static_cast<double>(program_.value(gather.whole).dtype)};
    program_.add_op(segment_, exchange.function, Part::input, base_ops::decode_fp8, {codes, gather.whole},
                    std::span(&to, 1), before);
    if (gather.unblock != none) program_.forget_value(exchange.operands.back());
  }

  Id behind(Id op) const {
    const std::vector<Id>& ops = program_.segment(segment_).ops(program_.op(op).function);
    const auto next = std::find(ops.begin(), ops.end(), op) + 1;
    return next == ops.end() ? none : *next;
  }

  // Adds codes of a value, which lie as it does.
  Id add_codes(Id of) {
    Value codes;
    const Value& value = program_.value(of);
    codes.name = value.name + ".codes";
    codes.dtype = DType::u8;
    codes.dims = value.dims;
    codes.dims.back().extent = codes.dims.back().extent / code_block * code_block_bytes(8);
    codes.segment = value.segment;
    codes.placement = value.placement;
    return program_.add_value(std::move(codes));
  }

  // Puts the same op on other operands in an op's place.
  void replace(Id id, std::vector<Id> operands) {
    const Op op = program_.op(id);
    std::vector<AttrValue> attrs;
    for (std::uint64_t i = 0; i < op.def->attr_count; ++i)
      attrs.push_back({op.def->attrs[i].name, program_.attr(id, op.def->attrs[i].name)});
    const Id other =
        program_.add_op(segment_, op.function, op.part, op.kind(), std::move(operands), attrs, id);
    program_.op(other).again = op.again;
    program_.erase_op(id);
  }

  Program& program_;
  const Id segment_;
};

}  // namespace

void gather_inputs_in_codes(Program& program) {
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    SegmentGathers(program, segment).run();
}

GatheredInputs gathered_inputs(const Program& program, Id segment) {
  GatheredInputs all;
  for (const FunctionKind function : microbatch_functions)
    for (const Id id : program.segment(segment).ops(function))
      if (gathers_values(program, id)) {
        ++all.gathers;
        all.in_codes += program.value(program.op(id).operands.front()).dtype == DType::u8;
      }
  return all;
}

}  // namespace prun
