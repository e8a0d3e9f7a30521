// Has what ranks gather for products in fp8 alone travel in codes, as tensor parallelism gathers the input of
// a product where ranks share out sequences between layers.
//
// An input is rounded to codes where it is stored, decoded behind the gather, and rounded again by the
// product, which changes no number: a code times its scale is a number of every type of values, and what is
// rounded once stays as it is. So products know nothing of it, and bits are those of a gather of numbers.
#include "passes.hpp"
#include "prun/block_codes.hpp"

namespace prun::fp8 {
namespace {

bool gathers_values(ProgramRef program, Id id) {
  const OpInfo op = program.op(id);
  return op.def->exchange && op.def->exchange->kind == CommKind::all_gather &&
         program.value(op.operands[0]).role == Role::activation;
}

// Changes the gathers of one segment.
class SegmentGathers {
 public:
  SegmentGathers(const Segment& segment, const Places& places)
      : segment_(segment), program_(segment.program()), places_(places) {}

  void run() {
    for (const FunctionKind function : microbatch_functions) {
      std::vector<Id> gathers = segment_.operations(function);
      std::erase_if(gathers, [&](Id op) { return !gathers_values(program_, op); });
      for (const Id gather : gathers) change(gather, function);
    }
  }

 private:
  struct Gather {
    Id exchange = none, unblock = none;  // none where what arrives lies as it is read
    Id part = none, arrived = none, whole = none;
    FunctionKind function = FunctionKind::forward;
  };

  std::vector<Id> readers_of(Id value) const {
    std::vector<Id> readers;
    for (int kind = 0; kind < function_kinds; ++kind)
      for (const Id id : segment_.operations(static_cast<FunctionKind>(kind))) {
        const OpInfo op = program_.op(id);
        for (std::size_t i = 0; i < op.operands.size; ++i)
          if (op.operands[i] == value && access(op, i) != Access::write) readers.push_back(id);
      }
    return readers;
  }

  // Returns the gather with what brings its blocks in order, if that is all that reads them.
  std::optional<Gather> gather_by(Id exchange, FunctionKind function) const {
    const OpInfo op = program_.op(exchange);
    const Id arrived = op.operands[op.operands.size - 1];
    Gather gather{exchange, none, op.operands[0], arrived, arrived, function};
    if (program_.attr(exchange, "direct") != 0) return gather;
    const std::vector<Id> readers = readers_of(arrived);
    if (readers.size() != 1) return {};
    const OpInfo unblock = program_.op(readers[0]);
    if (unblock.kind.view() != "unblock" || unblock.function != function) return {};
    gather.unblock = readers[0];
    gather.whole = unblock.operands[unblock.operands.size - 1];
    return gather;
  }

  bool is_handed_on(Id value) const {
    const SegmentInfo segment = segment_.info();
    return value == segment.outgoing || value == segment.incoming_gradient || program_.used_elsewhere(value);
  }

  // Returns the blocks in which all that reads a value multiplies it, in rows of its last dimension.
  std::optional<Fp8Blocks> blocks_of(Id value) const {
    std::optional<Fp8Blocks> blocks;
    const std::vector<Id> readers = readers_of(value);
    for (const Id id : readers) {
      if (!multiplies_everywhere(program_, id) || std::count(readers.begin(), readers.end(), id) != 1)
        return {};
      for (const Factor& factor : factors_of(program_, id)) {
        if (factor.value != value) continue;
        if (factor.in_dims != 1 || (blocks && *blocks != factor.blocks)) return {};
        blocks = factor.blocks;
      }
      if (!blocks) return {};
    }
    return blocks;
  }

  // Says whether blocks of a rank's part are those of the whole.
  bool keeps_blocks(Id part, Fp8Blocks blocks) const {
    const OperandShape local = places_.local_shape(part);
    const ValueInfo value = program_.value(part);
    if (local.rank < 2) return false;
    const std::int64_t last = local.dims[local.rank - 1].extent;
    if (last != value.dims[local.rank - 1].extent || last % fp8_block != 0) return false;
    return blocks == Fp8Blocks::rows ||
           (blocks == Fp8Blocks::squares && local.dims[local.rank - 2].extent % fp8_block == 0);
  }

  void change(Id exchange, FunctionKind function) {
    const std::optional<Gather> gather = gather_by(exchange, function);
    if (!gather || is_handed_on(gather->whole) || !is_float(program_.value(gather->part).dtype)) return;
    const std::optional<Fp8Blocks> blocks = blocks_of(gather->whole);
    if (blocks && keeps_blocks(gather->part, *blocks)) travel_in_codes(*gather, *blocks);
  }

  void travel_in_codes(const Gather& gather, Fp8Blocks blocks) {
    const Id next =
        behind(segment_, gather.function, gather.unblock == none ? gather.exchange : gather.unblock);
    const Id own = codes_of(gather.part), arrived = codes_of(gather.arrived);
    segment_.insert_on(gather.function, gather.exchange,
                       blocks == Fp8Blocks::rows ? "encode_fp8" : "encode_fp8_square_rows",
                       {gather.part, own});
    move(gather.exchange, own, arrived);
    const Id codes = gather.unblock == none ? arrived : codes_of(gather.whole);
    if (gather.unblock != none) move(gather.unblock, arrived, codes);
    segment_.insert_on(gather.function, next, "decode_fp8", {codes, gather.whole},
                       {{"to", static_cast<double>(program_.value(gather.whole).dtype)}});
  }

  Id codes_of(Id value) const {
    OperandShape codes = shape_of(program_.value(value));
    codes.dtype = DType::u8;
    std::int64_t& last = codes.dims[codes.rank - 1].extent;
    last = last / code_block * code_block_bytes(8);
    return add_codes(program_, value, codes, ".codes");
  }

  // Has an op take and give other values.
  void move(Id id, Id from, Id to) const {
    const OpInfo op = program_.op(id);
    std::vector<AttrValue> attrs;
    for (std::uint64_t i = 0; i < op.def->attr_count; ++i)
      attrs.push_back({op.def->attrs[i].name, program_.attr(id, op.def->attrs[i].name)});
    const Id operands[] = {from, to};
    const std::string kind(op.kind.view());
    raise(
        program_.api().replace_op(program_.handle(), id, kind, {operands, 2}, {attrs.data(), attrs.size()}));
  }

  const Segment segment_;
  const ProgramRef program_;
  const Places& places_;
};

}  // namespace

void gather_inputs_in_codes(ProgramRef program) {
  const Places places(program);
  for (const Segment& segment : program.segments()) SegmentGathers(segment, places).run();
}

}  // namespace prun::fp8
