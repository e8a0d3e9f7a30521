#include "inspect/fp8.hpp"

#include <algorithm>
#include <set>

#include "base/text.hpp"
#include "estimate/costs.hpp"

namespace prun {
namespace {

// Says whether a value is codes that a step keeps, or that come together.
bool is_kept(const Program& program, Id id) {
  const Value& value = program.value(id);
  return (value.role == Role::fetched || value.role == Role::view) && value.dtype == DType::u8;
}

// Returns, for codes that an op before has turned, what they were; else the same value.
Id before_turning(const Program& program, const Op& reader, Id codes) {
  for (const Id id : program.segment(reader.segment).ops(reader.function))
    if (const Op& op = program.op(id); op.is("turn_fp8_squares") && op.operands[1] == codes)
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

bool gathers_values(const Program& program, Id id) {
  const Op& op = program.op(id);
  const Role role = program.value(op.operands.front()).role;
  return op.exchange() && op.exchange()->kind == CommKind::all_gather && role == Role::activation;
}

}  // namespace

SavedInCodes saved_in_codes(const Program& program, Id segment) {
  SavedInCodes saved;
  for (const Id id : program.segment(segment).ops(FunctionKind::forward))
    if (const Op& op = program.op(id); op.is("encode_fp8_squares")) {
      ++saved.values;
      saved.bytes += program.local_bytes(op.operands[1]);
      saved.bytes_before += program.local_bytes(op.operands[0]);
    }
  return saved;
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

namespace {

// Says what of each segment there is, in the words of `of`, which is empty where there is nothing.
template <class Words>
std::string line(const Program& program, const char* title, Words of) {
  std::string text;
  for (Id id = 0; id < program.segment_count(); ++id)
    if (const std::string words = of(id); !words.empty()) text += (text.empty() ? "" : "; ") + words;
  return text.empty() ? "" : title + text + "\n";
}

}  // namespace

std::string fp8_text(const Program& program) {
  const double share = share_in_fp8(program);
  if (share == 0) return "";
  std::string text = format("products    %.1f %% of the FLOPs of layers' products in fp8\n", 100 * share);
  const auto name = [&](Id segment) { return program.segment(segment).name.c_str(); };
  text += line(program, "saved       quantized: ", [&](Id id) {
    const SavedInCodes saved = saved_in_codes(program, id);
    if (saved.values == 0) return std::string();
    return format("%lld of %s (%s a layer instead of %s)", static_cast<long long>(saved.values), name(id),
                  size_text(saved.bytes).c_str(), size_text(saved.bytes_before).c_str());
  });
  text += line(program, "weights     as codes for a step: ", [&](Id id) {
    const WeightCodes codes = weight_codes(program, id);
    if (codes.of_codes == 0) return std::string();
    return format("%lld of %lld products of %s (%s a layer%s)", static_cast<long long>(codes.of_codes),
                  static_cast<long long>(codes.products), name(id), size_text(codes.bytes).c_str(),
                  codes.come_together ? ", as ranks gather them" : "");
  });
  return text + line(program, "inputs      quantized: ", [&](Id id) {
           const GatheredInputs inputs = gathered_inputs(program, id);
           if (inputs.in_codes == 0) return std::string();
           return format("%lld of %lld gathers of activations of %s", static_cast<long long>(inputs.in_codes),
                         static_cast<long long>(inputs.gathers), name(id));
         });
}

}  // namespace prun
