#include "program/weight_codes.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "ops/base_ops.hpp"
#include "program/factor_codes.hpp"

namespace prun {
namespace {

// Keeps codes of the weights of one segment.
class SegmentWeights {
 public:
  SegmentWeights(Program& program, Id segment) : program_(program), segment_(segment) {}

  void run() {
    for (const FunctionKind function : microbatch_functions) {
      const std::vector<Id> ops = program_.segment(segment_).ops(function);
      for (const Id op : ops)
        for (std::size_t i = 0; i < program_.op(op).operands.size(); ++i) take(op, i);
    }
  }

 private:
  // Has the op read codes of a weight, by columns or by rows as its rule takes them.
  void take(Id op, std::size_t operand) {
    const Id id = program_.op(op).operands[operand];
    if (id == none || program_.value(id).role != Role::parameter || !program_.op(op).has_attr("in_dims"))
      return;
    const auto in_dims = static_cast<int>(program_.attr(op, "in_dims"));
    for (const bool by_rows : {true, false}) {
      const OperandShape codes = fp8_squares_of(shape_of_value(program_.value(id)), in_dims, by_rows);
      if (!takes_codes(program_, op, operand, codes) || !lies_as(program_.value(id), codes) ||
          !are_cut_alike(program_, id, codes, in_dims, by_rows))
        continue;
      check_is_there(id);
      read_codes(program_, op, operand, codes_of(id, codes, in_dims, by_rows));
      return;
    }
  }

  void check_is_there(Id weight) const {
    const Value& value = program_.value(weight);
    const auto refuse = [&](const char* why) {
      throw_error(ErrorCode::unsupported,
                  "cannot cache quantized weights (precision.cache_weights = true): '", value.name,
                  "' of segment '", program_.segment(value.segment).name, "' ", why,
                  "; leave precision.cache_weights out");
    };
    if (value.bucket >= 0 && gathers_parameters(program_, program_.bucket_of(value)))
      refuse("is gathered for each use, quantized by precision.gather");
    if (value.place) refuse("is offloaded and fetched for each use");
    if (value.segment != segment_) refuse("is another segment's");
  }

  Id codes_of(Id weight, const OperandShape& shape, int in_dims, bool by_rows) {
    const auto [known, fresh] = known_.try_emplace({weight, by_rows}, none);
    if (!fresh) return known->second;
    known->second = add_codes(program_, weight, shape, Role::fetched, by_rows ? ".rows" : ".columns");
    const AttrValue attrs[] = {{"in_dims", static_cast<double>(in_dims)}, {"by_rows", by_rows ? 1.0 : 0.0}};
    program_.add_op(segment_, FunctionKind::gather, Part::input, base_ops::encode_fp8_squares,
                    {weight, known->second}, attrs);
    return known->second;
  }

  Program& program_;
  const Id segment_;
  std::map<std::pair<Id, bool>, Id> known_;
};

// Says whether a value is codes that a step keeps, or that come together.
bool is_kept(const Program& program, Id id) {
  const Value& value = program.value(id);
  return (value.role == Role::fetched || value.role == Role::view) && value.dtype == DType::u8;
}

// Returns, for codes that an op before has turned, what they were; else the same value.
Id before_turning(const Program& program, const Op& reader, Id codes) {
  for (const Id id : program.segment(reader.segment).ops(reader.function))
    if (const Op& op = program.op(id); op.is(base_ops::turn_fp8_squares) && op.operands[1] == codes)
      return op.operands[0];
  return codes;
}

// Says whether an op reads a parameter as a factor, rather than as a bias: it sums over a dimension of it.
bool is_factor(const Program& program, const Op& op, std::size_t operand) {
  const Value& value = program.value(op.operands[operand]);
  if (value.role != Role::parameter) return false;
  OpShape shape = program.shape(op);
  raise(op.def->rule(&shape));
  return std::any_of(value.dims.begin(), value.dims.end(), [&](const Dim& dim) {
    return std::find(std::begin(shape.sums), std::end(shape.sums), dim.name) != std::end(shape.sums);
  });
}

}  // namespace

void keep_weight_codes(Program& program) {
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    SegmentWeights(program, segment).run();
}

WeightCodes weight_codes(const Program& program, Id segment) {
  WeightCodes codes;
  std::set<Id> kept;
  for (const FunctionKind function : microbatch_functions)
    for (const Id id : program.segment(segment).ops(function)) {
      const Op& op = program.op(id);
      if (!op.def->in_blocks || program.attr(id, "fp8") == 0) continue;
      for (std::size_t i = 0; i < op.operands.size(); ++i) {
        if (op.operands[i] == none || op.access(i) != Access::read) continue;
        const Id read = before_turning(program, op, op.operands[i]);
        const bool is_codes = is_kept(program, read);
        codes.of_codes += is_codes;
        codes.products += is_codes || is_factor(program, op, i);
        codes.come_together |= is_codes && program.value(read).role == Role::view;
        if (is_codes && kept.insert(read).second) codes.bytes += program.local_bytes(read);
      }
    }
  return codes;
}

}  // namespace prun
