// Implements document_starts, sample by sample.
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/token_places.hpp"
#include "prun/op.hpp"

namespace prun::cpu::PRUN_ISA {

namespace {

void document_starts(const KernelArgs& args, const KernelContext& context) {
  const Tensor& tokens = args.operands[0];
  const std::int64_t seq = tokens.dim[1], end = args.attrs[0].i;
  const std::int32_t* places = places_of(args);
  parallel_ranges(*context.workers, tokens.dim[0], 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b) {
      const std::int32_t* token = tokens.as<const std::int32_t>() + b * seq;
      std::int32_t* starts = args.operands[1].as<std::int32_t>() + b * seq;
      std::int32_t start = 0;
      for (std::int64_t i = 0; i < seq; ++i) {
        const std::int64_t at = places ? places[i] : i;
        starts[at] = start;
        if (token[at] == end) start = static_cast<std::int32_t>(i + 1);
      }
    }
  });
}

Kernel select_document_starts(const OpShape& s) { return numbers_tokens(s) ? document_starts : nullptr; }

}  // namespace

std::vector<KernelDef> documents_kernels();
std::vector<KernelDef> documents_kernels() {
  return {{"document_starts", select_document_starts, places_workspace}};
}

}  // namespace prun::cpu::PRUN_ISA
