// Implements token_types, sample by sample.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "documents/cpu_places.hpp"
#include "prun/op.hpp"
#include "prun/ops/token_types.hpp"

namespace prun::cpu::PRUN_ISA {

namespace {

void token_types(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::TokenTypes> op(args);
  const Tensor& tokens = op["tokens"];
  const std::int64_t seq = tokens.dim[1], separator = op.integer("separator");
  const auto last = static_cast<std::int32_t>(op.integer("types") - 1);
  const std::int32_t* places = places_of(op["positions"], args.workspace);
  parallel_ranges(*context.workers, tokens.dim[0], 1, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t b = first; b < end; ++b) {
      const std::int32_t* token = tokens.as<const std::int32_t>() + b * seq;
      std::int32_t* kinds = op["kinds"].as<std::int32_t>() + b * seq;
      std::int32_t passed = 0;
      for (std::int64_t i = 0; i < seq; ++i) {
        const std::int64_t at = places ? places[i] : i;
        kinds[at] = std::min(passed, last);
        if (token[at] == separator) ++passed;
      }
    }
  });
}

Kernel select_token_types(const OpShape& shape) {
  const ShapeOf<ops::TokenTypes> s(shape);
  return are_numbers(s["tokens"], s["kinds"]) ? token_types : nullptr;
}

}  // namespace

std::vector<KernelDef> token_types_kernels();
std::vector<KernelDef> token_types_kernels() {
  return {{ops::TokenTypes::kind, select_token_types, places_workspace<ops::TokenTypes>}};
}

}  // namespace prun::cpu::PRUN_ISA
