#include "program/saved_codes.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "prun/fp8_squares.hpp"

namespace prun {
namespace {

constexpr const char* encode_kind = "encode_fp8_squares";
constexpr FunctionKind passes_back[] = {FunctionKind::backward, FunctionKind::backward_weight};

OperandShape shape_of(const Value& value) {
  OperandShape shape;
  shape.present = true;
  shape.dtype = value.dtype;
  shape.rank = static_cast<std::int32_t>(value.dims.size());
  std::copy(value.dims.begin(), value.dims.end(), shape.dims);
  return shape;
}

// Returns the attributes of an op that reads codes.
std::vector<AttrValue> attrs_with_codes(const Program& program, Id op) {
  std::vector<AttrValue> attrs;
  for (std::uint64_t i = 0; i < program.op(op).def->attr_count; ++i) {
    const char* const name = program.op(op).def->attrs[i].name;
    attrs.push_back({name, std::string_view(name) == "fp8" ? 2.0 : program.attr(op, name)});
  }
  return attrs;
}

// Keeps the values of one segment in codes.
class SegmentCodes {
 public:
  SegmentCodes(Program& program, Id segment) : program_(program), segment_(segment) {}

  void run() {
    const std::vector<Id> forward = ops(FunctionKind::forward);
    for (const Id op : forward)
      for (std::size_t i = 0; i < program_.op(op).operands.size(); ++i)
        if (const Id value = program_.op(op).operands[i];
            value != none && program_.op(op).access(i) == Access::write)
          keep(value);
  }

 private:
  const std::vector<Id>& ops(FunctionKind kind) const { return program_.segment(segment_).ops(kind); }

  void keep(Id id) {
    const Value& value = program_.value(id);
    if (value.role != Role::activation || id == program_.segment(segment_).outgoing ||
        program_.is_carried(id))
      return;
    const std::vector<Id> readers = readers_in_backward(id);
    if (readers.empty() || !takes_codes(readers.front(), id)) return;
    const double in_dims = program_.attr(readers.front(), "in_dims");
    for (const Id reader : readers)
      if (!takes_codes(reader, id) || program_.attr(reader, "in_dims") != in_dims) return;
    const OperandShape codes = fp8_squares_of(shape_of(value), static_cast<int>(in_dims));
    if (!lies_as(value, codes)) return;
    const Id kept = encode(id, codes, in_dims);
    for (const Id reader : readers) read(reader, kept);
  }

  std::vector<Id> readers_in_backward(Id value) const {
    std::vector<Id> readers;
    for (const FunctionKind kind : passes_back)
      for (const Id op : ops(kind))
        if (const std::vector<Id>& all = program_.op(op).operands;
            std::find(all.begin(), all.end(), value) != all.end())
          readers.push_back(op);
    return readers;
  }

  // Says whether an op takes codes: it has the value as its operand 0 and nowhere else, multiplied in fp8 in
  // all layers; its rule has the last word.
  bool takes_codes(Id id, Id value) const {
    const Op& op = program_.op(id);
    if (!op.def->in_blocks || !op.has_attr("in_dims") || program_.attr(id, "fp8") != 1) return false;
    for (const std::string_view some : {"fp8_from", "fp8_until"})
      if (op.has_attr(some) && program_.attr(id, some) != 0) return false;
    if (op.operands[0] != value || op.access(0) != Access::read ||
        std::count(op.operands.begin(), op.operands.end(), value) != 1)
      return false;
    OpShape shape = program_.shape(op);
    std::vector<Attr> attrs = op.attrs;
    for (std::size_t i = 0; i < attrs.size(); ++i)
      if (std::string_view(op.def->attrs[i].name) == "fp8") attrs[i].i = 2;
    shape.attrs = attrs.data();
    shape.operand[0] =
        fp8_squares_of(shape_of(program_.value(value)), static_cast<int>(program_.attr(id, "in_dims")));
    return shape.operand[0].present && op.def->rule(&shape).ok();
  }

  // Says whether, on each axis, the value is complete, and whole or split along a dimension of the codes.
  bool lies_as(const Value& value, const OperandShape& codes) const {
    return std::all_of(value.placement.begin(), value.placement.end(), [&](const AxisPlacement& at) {
      if (at.is_incomplete()) return false;
      return !at.is_sharded() || std::any_of(codes.dims, codes.dims + codes.rank,
                                             [&](const Dim& dim) { return dim.name == at.dim; });
    });
  }

  // Adds the op that makes the codes, behind the first op of forward that reads the value.
  Id encode(Id value, const OperandShape& shape, double in_dims) {
    Value codes;
    codes.name = program_.value(value).name + ".codes";
    codes.dtype = shape.dtype;
    codes.dims.assign(shape.dims, shape.dims + shape.rank);
    codes.segment = segment_;
    codes.placement = program_.value(value).placement;
    const Id kept = program_.add_value(std::move(codes));
    const AttrValue in{"in_dims", in_dims};
    program_.add_op(segment_, FunctionKind::forward, Part::input, encode_kind, {value, kept},
                    std::span(&in, 1), behind_first_reader(value));
    return kept;
  }

  Id behind_first_reader(Id value) const {
    const std::vector<Id>& all = ops(FunctionKind::forward);
    for (auto op = all.begin(); op != all.end(); ++op)
      for (std::size_t i = 0; i < program_.op(*op).operands.size(); ++i)
        if (program_.op(*op).operands[i] == value && program_.op(*op).access(i) == Access::read)
          return op + 1 == all.end() ? none : op[1];
    return none;
  }

  void read(Id reader, Id codes) {
    const Op op = program_.op(reader);
    std::vector<Id> operands = op.operands;
    operands[0] = codes;
    const std::vector<AttrValue> attrs = attrs_with_codes(program_, reader);
    program_.replace_op(reader, op.kind(), std::move(operands), attrs);
  }

  Program& program_;
  const Id segment_;
};

}  // namespace

void save_in_codes(Program& program) {
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    SegmentCodes(program, segment).run();
}

SavedInCodes saved_in_codes(const Program& program, Id segment) {
  SavedInCodes saved;
  for (const Id id : program.segment(segment).ops(FunctionKind::forward))
    if (const Op& op = program.op(id); op.kind() == encode_kind) {
      ++saved.values;
      saved.bytes += program.local_bytes(op.operands[1]);
      saved.bytes_before += program.local_bytes(op.operands[0]);
    }
  return saved;
}

}  // namespace prun
