// Implements the ops that decide about an update: sum_squares, clip_factor, and count_non_finite, which runs
// where that was against the update.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/values.hpp"
#include "optimizer/cpu_operands.hpp"
#include "prun/ops/optimizer.hpp"
#include "prun/ops/summands.hpp"
#include "square_sum.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

constexpr std::int64_t count_grain = 4096;

template <class T>
void add_row(const T* __restrict values, double* __restrict columns) {
  for (std::int64_t i = 0; i < square_sum::row_elements; i += square_sum::columns) {
#pragma omp simd
    for (std::int64_t c = 0; c < square_sum::columns; ++c) {
      const double value = load(values[i + c]);
      columns[c] += value * value;
    }
  }
}

double fold(double* values, std::int64_t count) {
  for (std::int64_t half = count / 2; half > 0; half /= 2)
    for (std::int64_t i = 0; i < half; ++i) values[i] += values[i + half];
  return values[0];
}

template <class T>
double sum_of_part(const T* values, std::int64_t elements) {
  using namespace square_sum;
  double column[columns] = {};
  std::int64_t i = 0;
  for (; i + row_elements <= elements; i += row_elements) add_row(values + i, column);
  if (i < elements) {
    std::array<T, row_elements> padded{};
    std::copy_n(values + i, elements - i, padded.begin());
    add_row(padded.data(), column);
  }
  double lane[lanes];
  for (int l = 0; l < lanes; ++l) lane[l] = fold(column + l * together, together);
  return fold(lane, lanes);
}

template <class Op, class T>
void sum_squares(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<Op> op(args);
  const Tensor& x = op["x"];
  const std::int64_t elements = x.elements(), parts = square_sum::parts_of(elements);
  const std::int64_t each = square_sum::part_elements(elements);
  double* part = static_cast<double*>(args.workspace);
  parallel_ranges(*context.workers, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p)
      part[p] = sum_of_part(x.as<const T>() + p * each, std::min(each, elements - p * each));
  });
  double lane[square_sum::lanes] = {};
  for (std::int64_t p = 0; p < parts; ++p) lane[p % square_sum::lanes] += part[p];
  *op["sum"].template as<double>() += fold(lane, square_sum::lanes);
}

template <class Op>
std::int64_t sum_squares_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<Op> s(shape);
  return square_sum::parts_of(s["x"].elements()) * size_of(DType::f64);
}

void clip_factor(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::ClipFactor> op(args);
  const double scale = op.has("scale") ? scalar(op["scale"]) : 1, limit = op.real("limit");
  const double norm = std::sqrt(scalar(op["sum"])) / scale;
  const bool finite = std::isfinite(norm) && std::isfinite(scalar(op["loss"]));
  *op["norm"].as<double>() = norm;
  *op["clip"].as<double>() = (limit > 0 && norm > limit ? limit / norm : 1.0) / scale;
  *op["keep"].as<double>() = finite && scalar(op["halt"]) == 0 ? 1.0 : 0.0;
}

template <class T>
void count_non_finite(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::CountNonFinite> op(args);
  if (scalar(op["keep"]) != 0) return;
  const Tensor& x = op["x"];
  const std::int64_t first = op.integer("first") - x.start[0], elements = op.integer("elements");
  const std::int64_t from = elements > 0 ? std::max<std::int64_t>(first, 0) : 0;
  const std::int64_t to = elements > 0 ? std::min(first + elements, x.elements()) : x.elements();
  if (from >= to) return;
  std::atomic<std::int64_t> found{0};
  parallel_ranges(*context.workers, to - from, count_grain, [&](std::int64_t begin, std::int64_t end) {
    const T* values = x.as<const T>() + from;
    found += std::count_if(values + begin, values + end, [](T value) { return !std::isfinite(load(value)); });
  });
  op["counts"].as<double>()[op.integer("index") + args.layer * op.integer("stride")] +=
      static_cast<double>(found.load());
}

template <class Op>
Kernel select_sum_squares(const OpShape& shape) {
  const ShapeOf<Op> s(shape);
  if (!all_double(s, {"sum"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return sum_squares<Op, T>; });
}

Kernel select_clip_factor(const OpShape& shape) {
  const ShapeOf<ops::ClipFactor> s(shape);
  const bool scale = !s.has("scale") || all_double(s, {"scale"});
  return all_double(s, {"sum", "loss", "halt", "norm", "clip", "keep"}) && scale ? clip_factor : nullptr;
}

Kernel select_count_non_finite(const OpShape& shape) {
  const ShapeOf<ops::CountNonFinite> s(shape);
  if (!all_double(s, {"keep", "counts"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return count_non_finite<T>; });
}

template <class Op>
KernelDef sum_squares_kernel() {
  return {Op::kind, select_sum_squares<Op>, sum_squares_workspace<Op>};
}

}  // namespace

std::vector<KernelDef> gradient_norm_kernels();
std::vector<KernelDef> gradient_norm_kernels() {
  return {sum_squares_kernel<ops::SumSquares>(),
          sum_squares_kernel<ops::SummandSquares>(),
          {ops::ClipFactor::kind, select_clip_factor},
          {ops::CountNonFinite::kind, select_count_non_finite}};
}

}  // namespace prun::cpu::PRUN_ISA
