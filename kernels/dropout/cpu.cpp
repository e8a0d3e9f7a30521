// Implements dropout: which elements are dropped is a function of (seed, layer, stream, sample number,
// position, channel) alone. Channels come in fours: a Philox block has one word for each. Its counter is
// {channel / 4, position, low half of the sample number, (layer << 16) + stream}; its key is the seed, whose
// upper half is mixed with the sample number's. An element stays if the upper 24 bits of its word, read as a
// fraction, are at least p.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/drop_draws.hpp"
#include "cpu/values.hpp"
#include "prun/ops/dropout.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

template <class T, class C>
void drop(const std::uint32_t* __restrict words, const DropChance<C>& chance, const T* __restrict x,
          T* __restrict y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t c = 0; c < n; ++c) {
    const C kept = load(x[c]) * chance.scale;
    store(y[c], (words[c] >> 8) >= chance.least ? kept : C(0));
  }
}

// Drops from a row whose first channel has the number `start`.
template <class T, class C>
void drop_row(const DropRow& row, const DropChance<C>& chance, const T* x, T* y, std::int64_t start,
              std::int64_t width) {
  alignas(64) std::uint32_t words[most_drawn];
  for (std::int64_t c = 0; c < width;) {
    const std::int64_t channel = start + c, skipped = channel % 4;
    const std::int64_t n = std::min(most_drawn - skipped, width - c);
    draw_words(row, static_cast<std::uint32_t>(channel / 4), skipped + n, words);
    drop(words + skipped, chance, x + c, y + c, n);
    c += n;
  }
}

DropRow row_of(const KernelArgs& args, std::int64_t sample, std::int64_t position) {
  const ArgsOf<ops::Dropout> op(args);
  return drop_row_at(*op["seed"].as<const double>(), sample, position,
                     static_cast<std::uint32_t>((args.layer << 16) + op.integer("stream")));
}

template <class T>
void dropout(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Dropout> op(args);
  const Tensor &x = op["x"], &samples = op["samples"], &y = op["y"];
  const std::int64_t seq = x.dim[1], width = x.inner(x.rank - 2), start = x.start[2] * x.inner(x.rank - 3);
  const Places places(x.start[1], op["positions"]);
  const DropChance<Compute<T>> chance(op.real("p"));
  parallel_ranges(*context.workers, x.dim[0] * seq, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const DropRow row = row_of(args, samples.as<const std::int64_t>()[i / seq], places.position(i % seq));
      drop_row(row, chance, x.as<const T>() + i * width, y.as<T>() + i * width, start, width);
    }
  });
}

Kernel select_dropout(const OpShape& shape) {
  const ShapeOf<ops::Dropout> s(shape);
  if (!same_type(s, {"x", "y"}) || s["samples"].dtype != DType::i64 || s["seed"].dtype != DType::f64)
    return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return dropout<T>; });
}

}  // namespace

std::vector<KernelDef> dropout_kernels();
std::vector<KernelDef> dropout_kernels() { return {{ops::Dropout::kind, select_dropout}}; }

}  // namespace prun::cpu::PRUN_ISA
