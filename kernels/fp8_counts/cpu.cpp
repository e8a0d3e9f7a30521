// Implements count_fp8_codes and peak_fp8_scales: each thread counts some tiles. Counts are whole numbers, so
// that their order has no effect.
#include <atomic>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/fp8_blocks.hpp"
#include "prun/ops/fp8_counts.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> fp8_counts_kernels();

namespace {

constexpr std::uint32_t scale_of_nan = 0x7fc00000u;

template <class Op>
bool counts_now(const KernelArgs& args) {
  const Tensor& on = ArgsOf<Op>(args)["on"];
  return multiplies_in_fp8(args, attr_of<Op>("fp8")) && *on.as<const double>() != 0;
}

double* row_of(const Tensor& counts, std::int64_t place, const KernelArgs& args) {
  return counts.as<double>() + 3 * (place + args.layer);
}

// Calls body(number, scale's bits, one over the scale) for all numbers of a tile that are not zero, in blocks
// that are finite.
template <Fp8Blocks blocks, class T, class Body>
void each_number(const T* tile, std::int64_t rows, std::int64_t columns, std::int64_t width, Body body) {
  const TileScales<blocks, T> scales(tile, rows, columns, width);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      const auto number = load(tile[i * width + j]);
      const std::uint32_t bits = scales.bits(i, j);
      if (number != 0 && bits != scale_of_nan) body(number, bits, scales.inverse(i, j));
    }
}

// Calls body.template operator()<blocks>(tile, rows, columns, width) for all tiles.
template <class T, class Op, class Body>
void each_tile_of(const ArgsOf<Op>& op, const KernelContext& context, Body body) {
  const Tensor& x = op["x"];
  const int in = static_cast<int>(op.integer("in_dims"));
  const std::int64_t width = x.inner(in);
  with_blocks(static_cast<Fp8Blocks>(op.integer("blocks")), [&]<Fp8Blocks blocks>() {
    each_tile(x.as<const T>(), x.outer(in), width, *context.workers,
              [&](const T* tile, std::int64_t rows, std::int64_t columns) {
                body.template operator()<blocks>(tile, rows, columns, width);
              });
  });
}

template <class T>
void count_fp8_codes(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::CountFp8Codes> op(args);
  if (!counts_now<ops::CountFp8Codes>(args)) return;
  std::atomic<std::int64_t> numbers = 0, flushed = 0, subnormal = 0;
  each_tile_of<T>(
      op, context,
      [&]<Fp8Blocks blocks>(const T* tile, std::int64_t rows, std::int64_t columns, std::int64_t width) {
        std::int64_t all = 0, zero = 0, small = 0;
        each_number<blocks>(tile, rows, columns, width, [&](auto x, std::uint32_t, auto inverse) {
          const auto size = std::abs(round_to_e4m3(x * inverse));
          ++all;
          zero += size == 0;
          small += size > 0 && size < e4m3_least_normal;
        });
        numbers += all, flushed += zero, subnormal += small;
      });
  double* const row = row_of(op["counts"], op.integer("place"), args);
  row[0] += static_cast<double>(numbers), row[1] += static_cast<double>(flushed);
  row[2] += static_cast<double>(subnormal);
}

void raise_to(std::atomic<double>& peak, double x) {
  for (double old = peak; old < x && !peak.compare_exchange_weak(old, x);) continue;
}

template <class T>
void peak_fp8_scales(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::PeakFp8Scales> op(args);
  if (!counts_now<ops::PeakFp8Scales>(args)) return;
  double* const row = row_of(op["peaks"], op.integer("place"), args);
  std::atomic<double> size = row[0], most = row[1], least = row[2];
  each_tile_of<T>(
      op, context,
      [&]<Fp8Blocks blocks>(const T* tile, std::int64_t rows, std::int64_t columns, std::int64_t width) {
        double largest = 0;
        std::uint32_t high = 0, low = 0;
        each_number<blocks>(tile, rows, columns, width, [&](auto x, std::uint32_t bits, auto) {
          largest = std::max(largest, static_cast<double>(std::abs(x)));
          high = std::max(high, bits >> 23);
          low = std::max(low, 255 - (bits >> 23));
        });
        raise_to(size, largest), raise_to(most, high), raise_to(least, low);
      });
  row[0] = size, row[1] = most, row[2] = least;
}

Kernel select_count(const OpShape& shape) {
  const ShapeOf<ops::CountFp8Codes> s(shape);
  if (s["on"].dtype != DType::f64 || s["counts"].dtype != DType::f64) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return count_fp8_codes<T>; });
}

Kernel select_peak(const OpShape& shape) {
  const ShapeOf<ops::PeakFp8Scales> s(shape);
  if (s["on"].dtype != DType::f64 || s["peaks"].dtype != DType::f64) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return peak_fp8_scales<T>; });
}

}  // namespace

std::vector<KernelDef> fp8_counts_kernels() {
  return {{ops::CountFp8Codes::kind, select_count}, {ops::PeakFp8Scales::kind, select_peak}};
}

}  // namespace prun::cpu::PRUN_ISA
