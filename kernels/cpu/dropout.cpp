// Implements dropout: which elements are dropped is a function of (seed, layer, stream, sample number,
// position, channel) alone. Channels come in fours: a Philox block has one word for each. Its counter is
// {channel / 4, position, low half of the sample number, layer << 16 | stream}; its key is the seed, whose
// upper half is mixed with the sample number's. An element stays if the upper 24 bits of its word, read as a
// fraction, are at least p.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/philox.hpp"
#include "cpu/values.hpp"
#include "philox_rounds.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

constexpr std::int64_t drawn = 256;  // is how many channels' words are drawn at once, at most

struct Row {
  std::uint32_t position;
  std::uint32_t sample;
  std::uint32_t place;  // has layer and stream
  PhiloxKey key;
};

// Draws the words of n or some more channels from 4 * first_group on.
void draw(const Row& row, std::uint32_t first_group, std::int64_t n, std::uint32_t* words) {
  constexpr std::int64_t half = 4 * philox_lanes;  // counts channels of one state
  static_assert(drawn % (2 * half) == 0);
  const Words zero = {};
  Words group = zero + first_group;
  for (int l = 0; l < philox_lanes; ++l) group[l] += static_cast<std::uint32_t>(l);
  PhiloxState start = {group, zero + row.position, zero + row.sample, zero + row.place};
  for (std::int64_t c = 0; c < n; c += 2 * half, start.a += 2 * philox_lanes) {
    PhiloxState x = start, y = start;
    y.a += philox_lanes;
    philox<rounds_of_steps>(x, y, row.key);
    x.store(words + c);
    y.store(words + c + half);
  }
}

// Holds p as the smallest word of an element that stays, and the factor for such elements.
template <class C>
struct Chance {
  std::uint32_t least;
  C scale;

  explicit Chance(double p)
      : least(static_cast<std::uint32_t>(std::ceil(p * 0x1p24))), scale(static_cast<C>(1.0 / (1.0 - p))) {}
};

template <class T, class C>
void drop(const std::uint32_t* __restrict words, const Chance<C>& chance, const T* __restrict x,
          T* __restrict y, std::int64_t n) {
#pragma omp simd
  for (std::int64_t c = 0; c < n; ++c) {
    const C kept = load(x[c]) * chance.scale;
    store(y[c], (words[c] >> 8) >= chance.least ? kept : C(0));
  }
}

// Drops from a row whose first channel has the number `start`.
template <class T, class C>
void drop_row(const Row& row, const Chance<C>& chance, const T* x, T* y, std::int64_t start,
              std::int64_t width) {
  alignas(64) std::uint32_t words[drawn];
  for (std::int64_t c = 0; c < width;) {
    const std::int64_t channel = start + c, skipped = channel % 4;
    const std::int64_t n = std::min(drawn - skipped, width - c);
    draw(row, static_cast<std::uint32_t>(channel / 4), skipped + n, words);
    drop(words + skipped, chance, x + c, y + c, n);
    c += n;
  }
}

Row row_of(const KernelArgs& args, std::int64_t sample_number, std::int64_t position) {
  const auto seed = static_cast<std::uint64_t>(*args.operands[2].as<const double>());
  const auto sample = static_cast<std::uint64_t>(sample_number);
  return {static_cast<std::uint32_t>(position),
          static_cast<std::uint32_t>(sample),
          static_cast<std::uint32_t>(args.layer << 16 | args.attrs[1].i),
          {static_cast<std::uint32_t>(seed),
           static_cast<std::uint32_t>(seed >> 32) ^ static_cast<std::uint32_t>(sample >> 32)}};
}

template <class T>
void dropout(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &samples = args.operands[1], &y = args.operands[3];
  const std::int64_t seq = x.dim[1], width = x.inner(x.rank - 2), start = x.start[2] * x.inner(x.rank - 3);
  const Places places(x.start[1], args.operands[4]);
  const Chance<Compute<T>> chance(args.attrs[0].f);
  parallel_ranges(*context.workers, x.dim[0] * seq, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Row row = row_of(args, samples.as<const std::int64_t>()[i / seq], places.position(i % seq));
      drop_row(row, chance, x.as<const T>() + i * width, y.as<T>() + i * width, start, width);
    }
  });
}

Kernel select_dropout(const OpShape& s) {
  if (!same_type(s, {0, 3}) || s.operand[1].dtype != DType::i64 || s.operand[2].dtype != DType::f64)
    return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return dropout<T>; });
}

}  // namespace

std::vector<KernelDef> dropout_kernels();
std::vector<KernelDef> dropout_kernels() { return {{"dropout", select_dropout}}; }

}  // namespace prun::cpu::PRUN_ISA
