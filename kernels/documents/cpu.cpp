// Implements document_starts, sample by sample.
#include <vector>

#include "cpu/dispatch.hpp"
#include "documents/cpu_places.hpp"
#include "prun/op.hpp"
#include "prun/ops/documents.hpp"

namespace prun::cpu::PRUN_ISA {

namespace {

void document_starts(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::DocumentStarts> op(args);
  const Tensor& tokens = op["tokens"];
  const std::int64_t seq = tokens.dim[1], end = op.integer("end");
  const std::int32_t* places = places_of(op["positions"], args.workspace);
  parallel_ranges(*context.workers, tokens.dim[0], 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b) {
      const std::int32_t* token = tokens.as<const std::int32_t>() + b * seq;
      std::int32_t* starts = op["starts"].as<std::int32_t>() + b * seq;
      std::int32_t start = 0;
      for (std::int64_t i = 0; i < seq; ++i) {
        const std::int64_t at = places ? places[i] : i;
        starts[at] = start;
        if (token[at] == end) start = static_cast<std::int32_t>(i + 1);
      }
    }
  });
}

Kernel select_document_starts(const OpShape& shape) {
  const ShapeOf<ops::DocumentStarts> s(shape);
  return are_numbers(s["tokens"], s["starts"]) ? document_starts : nullptr;
}

}  // namespace

std::vector<KernelDef> documents_kernels();
std::vector<KernelDef> documents_kernels() {
  return {{ops::DocumentStarts::kind, select_document_starts, places_workspace<ops::DocumentStarts>}};
}

}  // namespace prun::cpu::PRUN_ISA
