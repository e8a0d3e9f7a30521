// document_starts, sample by sample.
#include <vector>

#include "cpu/dispatch.hpp"
#include "prun/op.hpp"

namespace prun::cpu::PRUN_ISA {

namespace {

// The place of each position, behind which the next one's is looked up; null: places are positions.
const std::int32_t* places_of(const KernelArgs& args) {
  const std::int32_t* positions = args.operands[2].as<const std::int32_t>();
  if (!positions) return nullptr;
  auto* places = static_cast<std::int32_t*>(args.workspace);
  for (std::int64_t i = 0; i < args.operands[2].dim[0]; ++i)
    places[positions[i]] = static_cast<std::int32_t>(i);
  return places;
}

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

std::int64_t document_starts_workspace(const OpShape& s, std::int32_t) {
  return s.operand[2].present ? s.operand[2].bytes() : 0;
}

Kernel select_document_starts(const OpShape& s) {
  return s.operand[0].dtype == DType::i32 && s.operand[1].dtype == DType::i32 ? document_starts : nullptr;
}

}  // namespace

std::vector<KernelDef> documents_kernels();
std::vector<KernelDef> documents_kernels() {
  return {{"document_starts", select_document_starts, document_starts_workspace}};
}

}  // namespace prun::cpu::PRUN_ISA
