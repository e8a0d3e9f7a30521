// Implements token_types, sample by sample.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/token_places.hpp"
#include "prun/op.hpp"

namespace prun::cpu::PRUN_ISA {

namespace {

void token_types(const KernelArgs& args, const KernelContext& context) {
  const Tensor& tokens = args.operands[0];
  const std::int64_t seq = tokens.dim[1], separator = args.attrs[0].i;
  const auto last = static_cast<std::int32_t>(args.attrs[1].i - 1);
  const std::int32_t* places = places_of(args);
  parallel_ranges(*context.workers, tokens.dim[0], 1, [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t b = first; b < end; ++b) {
      const std::int32_t* token = tokens.as<const std::int32_t>() + b * seq;
      std::int32_t* kinds = args.operands[1].as<std::int32_t>() + b * seq;
      std::int32_t passed = 0;
      for (std::int64_t i = 0; i < seq; ++i) {
        const std::int64_t at = places ? places[i] : i;
        kinds[at] = std::min(passed, last);
        if (token[at] == separator) ++passed;
      }
    }
  });
}

Kernel select_token_types(const OpShape& s) { return numbers_tokens(s) ? token_types : nullptr; }

}  // namespace

std::vector<KernelDef> token_types_kernels();
std::vector<KernelDef> token_types_kernels() {
  return {{"token_types", select_token_types, places_workspace}};
}

}  // namespace prun::cpu::PRUN_ISA
