// Implements ahead, sample by sample.
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/token_places.hpp"
#include "prun/op.hpp"

namespace prun::cpu::PRUN_ISA {

namespace {

void ahead(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &documents = args.operands[3];
  const std::int64_t seq = x.dim[1], by = args.attrs[0].i;
  const auto otherwise = static_cast<std::int32_t>(args.attrs[1].i);
  const std::int32_t* places = places_of(args);
  const auto place = [&](std::int64_t position) { return places ? places[position] : position; };
  parallel_ranges(*context.workers, x.dim[0], 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b) {
      const std::int32_t* from = x.as<const std::int32_t>() + b * seq;
      const std::int32_t* start = documents.data ? documents.as<const std::int32_t>() + b * seq : nullptr;
      std::int32_t* to = args.operands[1].as<std::int32_t>() + b * seq;
      for (std::int64_t i = 0; i < seq; ++i) {
        const bool there = i + by < seq && (!start || start[place(i + by)] <= i);
        to[place(i)] = there ? from[place(i + by)] : otherwise;
      }
    }
  });
}

Kernel select_ahead(const OpShape& s) { return numbers_tokens(s) ? ahead : nullptr; }

}  // namespace

std::vector<KernelDef> ahead_kernels();
std::vector<KernelDef> ahead_kernels() { return {{"ahead", select_ahead, places_workspace}}; }

}  // namespace prun::cpu::PRUN_ISA
