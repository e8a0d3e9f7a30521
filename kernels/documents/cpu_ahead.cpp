// Implements ahead, sample by sample.
#include <vector>

#include "cpu/dispatch.hpp"
#include "documents/cpu_places.hpp"
#include "prun/op.hpp"
#include "prun/ops/ahead.hpp"

namespace prun::cpu::PRUN_ISA {

namespace {

void ahead(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Ahead> op(args);
  const Tensor &x = op["x"], &documents = op["documents"];
  const std::int64_t seq = x.dim[1], by = op.integer("by");
  const auto otherwise = static_cast<std::int32_t>(op.integer("otherwise"));
  const std::int32_t* places = places_of(op["positions"], args.workspace);
  const auto place = [&](std::int64_t position) { return places ? places[position] : position; };
  parallel_ranges(*context.workers, x.dim[0], 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t b = first; b < last; ++b) {
      const std::int32_t* from = x.as<const std::int32_t>() + b * seq;
      const std::int32_t* start = documents.data ? documents.as<const std::int32_t>() + b * seq : nullptr;
      std::int32_t* to = op["y"].as<std::int32_t>() + b * seq;
      for (std::int64_t i = 0; i < seq; ++i) {
        const bool there = i + by < seq && (!start || start[place(i + by)] <= i);
        to[place(i)] = there ? from[place(i + by)] : otherwise;
      }
    }
  });
}

Kernel select_ahead(const OpShape& shape) {
  const ShapeOf<ops::Ahead> s(shape);
  return are_numbers(s["x"], s["y"]) ? ahead : nullptr;
}

}  // namespace

std::vector<KernelDef> ahead_kernels();
std::vector<KernelDef> ahead_kernels() {
  return {{ops::Ahead::kind, select_ahead, places_workspace<ops::Ahead>}};
}

}  // namespace prun::cpu::PRUN_ISA
