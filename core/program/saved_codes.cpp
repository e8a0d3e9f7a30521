#include "program/saved_codes.hpp"

#include <algorithm>

#include "ops/base_ops.hpp"
#include "program/factor_codes.hpp"

namespace prun {
namespace {

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
    if (readers.empty() || !program_.op(readers.front()).has_attr("in_dims")) return;
    const double in_dims = program_.attr(readers.front(), "in_dims");
    const OperandShape codes = fp8_squares_of(shape_of_value(value), static_cast<int>(in_dims));
    for (const Id reader : readers)
      if (program_.op(reader).operands[0] != id || !takes_codes(program_, reader, 0, codes) ||
          program_.attr(reader, "in_dims") != in_dims)
        return;
    if (!lies_as(value, codes)) return;
    const Id kept = encode(id, codes, in_dims);
    for (const Id reader : readers) read_codes(program_, reader, 0, kept);
  }

  std::vector<Id> readers_in_backward(Id value) const {
    std::vector<Id> readers;
    for (const FunctionKind kind : backward_functions)
      for (const Id op : ops(kind))
        if (const std::vector<Id>& all = program_.op(op).operands;
            std::find(all.begin(), all.end(), value) != all.end())
          readers.push_back(op);
    return readers;
  }

  // Adds the op that makes the codes, behind the first op of forward that reads the value.
  Id encode(Id value, const OperandShape& shape, double in_dims) {
    const Id kept = add_codes(program_, value, shape, Role::activation, ".codes");
    const AttrValue in{"in_dims", in_dims};
    program_.add_op(segment_, FunctionKind::forward, Part::input, base_ops::encode_fp8_squares, {value, kept},
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
    if (const Op& op = program.op(id); op.is(base_ops::encode_fp8_squares)) {
      ++saved.values;
      saved.bytes += program.local_bytes(op.operands[1]);
      saved.bytes_before += program.local_bytes(op.operands[0]);
    }
  return saved;
}

}  // namespace prun
