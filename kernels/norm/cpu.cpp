// Implements layernorm and rmsnorm over the last dimension, and their gradients.
#include <cmath>
#include <vector>

#include "cpu/column_sum.hpp"
#include "cpu/dispatch.hpp"
#include "cpu/lanes.hpp"
#include "cpu/values.hpp"
#include "prun/ops/norm.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

// Calls body(row, offset of its first element) for every row of x, of its last `dims` dimensions.
template <class Body>
void for_rows(const KernelContext& context, const Tensor& x, const Body& body, int dims = 1) {
  const std::int64_t width = x.inner(dims);
  parallel_ranges(*context.workers, x.outer(dims), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row, row * width);
  });
}

template <class C>
struct Moments {
  C mean;
  C rstd;
};

// Takes two passes, so that a large mean does not swallow the variance; the second reads a row from the
// cache.
template <class T, class C>
Moments<C> moments(const T* x, std::int64_t width, C eps) {
  const C count = static_cast<C>(width);
  const C mean = lane_sum<C>(width, [=](std::int64_t i) { return load(x[i]); }) / count;
  const C square = lane_sum<C>(width, [=](std::int64_t i) {
    const C difference = load(x[i]) - mean;
    return difference * difference;
  });
  return {mean, C(1) / std::sqrt(square / count + eps)};
}

template <class T>
void layernorm(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LayerNorm> op(args);
  using C = Compute<T>;
  const Tensor& x = op["x"];
  const T* gain = op["gain"].as<const T>();
  const T* bias = op["bias"].as<const T>();
  const C eps = static_cast<C>(op.real("eps"));
  const std::int64_t width = x.inner(1);
  for_rows(context, x, [&](std::int64_t row, std::int64_t offset) {
    const T* __restrict in = x.as<const T>() + offset;
    T* __restrict y = op["y"].as<T>() + offset;
    const auto [mean, rstd] = moments(in, width, eps);
    if (bias) {
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i)
        store(y[i], (load(in[i]) - mean) * rstd * load(gain[i]) + load(bias[i]));
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) store(y[i], (load(in[i]) - mean) * rstd * load(gain[i]));
    }
    op["mean"].as<C>()[row] = mean;
    op["rstd"].as<C>()[row] = rstd;
  });
}

// Adds the gradient that bypassed the norm, if there is one, to a row of the norm's own.
template <class T>
void add_residual(const T* residual, std::int64_t offset, std::int64_t width, T* __restrict dx) {
  if (!residual) return;
  const T* __restrict from = residual + offset;
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) store(dx[i], load(dx[i]) + load(from[i]));
}

// With xhat = (x - mean) * rstd and g = dy * gain, dx = rstd * (g - average(g) - xhat * average(g * xhat)).
template <class T>
void layernorm_input_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LayerNormInputGrad> op(args);
  using C = Compute<T>;
  const Tensor& x = op["x"];
  const T* gain = op["gain"].as<const T>();
  const std::int64_t width = x.inner(1);
  const C count = static_cast<C>(width);
  for_rows(context, x, [&](std::int64_t row, std::int64_t offset) {
    const T* __restrict dy = op["dy"].as<const T>() + offset;
    const T* __restrict in = x.as<const T>() + offset;
    T* __restrict dx = op["dx"].as<T>() + offset;
    const C mean = op["mean"].as<const C>()[row], rstd = op["rstd"].as<const C>()[row];
    const C average = lane_sum<C>(width, [=](std::int64_t i) { return load(dy[i]) * load(gain[i]); }) / count;
    const C slope = lane_sum<C>(width,
                                [=](std::int64_t i) {
                                  return load(dy[i]) * load(gain[i]) * ((load(in[i]) - mean) * rstd);
                                }) /
                    count;
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) {
      const C xhat = (load(in[i]) - mean) * rstd;
      store(dx[i], rstd * ((load(dy[i]) * load(gain[i]) - average) - xhat * slope));
    }
    add_residual(op["residual"].as<const T>(), offset, width, dx);
  });
}

template <class T, class Sum>
void layernorm_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LayerNormWeightGrad> op(args);
  using C = Compute<T>;
  const Tensor &dy = op["dy"], &x = op["x"];
  const C* mean = op["mean"].as<const C>();
  const C* rstd = op["rstd"].as<const C>();
  const RowGroups shape = RowGroups::of(dy, dy.inner(1));
  const auto add_row = [&](SumTile<Sum> tile, std::int64_t row, std::int64_t column, std::int64_t n) {
    const T* __restrict d = dy.as<const T>() + row * shape.width + column;
    const T* __restrict in = x.as<const T>() + row * shape.width + column;
    using Term = Compute<Sum>;
    Term* __restrict dgain = tile[0], * __restrict dbias = tile[1];
    const Term row_mean = mean[row], row_rstd = rstd[row];
#pragma omp simd
    for (std::int64_t c = 0; c < n; ++c) {
      const Term slope = load(d[c]);
      dgain[c] += slope * ((load(in[c]) - row_mean) * row_rstd);
      dbias[c] += slope;
    }
  };
  add_column_sums<Sum, 2>(
      *context.workers, shape,
      {ColumnSums<Sum>::of(args, op.at("dgain")), ColumnSums<Sum>::of(args, op.at("dbias"))}, add_row);
}

template <class T>
void rmsnorm(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RmsNorm> op(args);
  using C = Compute<T>;
  const Tensor& x = op["x"];
  const T* gain = op["gain"].as<const T>();
  const C eps = static_cast<C>(op.real("eps")), offset_by = static_cast<C>(op.real("offset"));
  const auto dims = static_cast<int>(op.integer("dims"));
  const std::int64_t width = x.inner(dims);
  for_rows(
      context, x,
      [&](std::int64_t row, std::int64_t offset) {
        const T* __restrict in = x.as<const T>() + offset;
        T* __restrict y = op["y"].as<T>() + offset;
        const C square = lane_sum<C>(width, [=](std::int64_t i) { return load(in[i]) * load(in[i]); });
        const C rstd = C(1) / std::sqrt(square / static_cast<C>(width) + eps);
#pragma omp simd
        for (std::int64_t i = 0; i < width; ++i)
          store(y[i], load(in[i]) * rstd * (offset_by + load(gain[i])));
        op["rstd"].as<C>()[row] = rstd;
      },
      dims);
}

// With xhat = x * rstd and g = dy * (offset + gain), dx = rstd * (g - xhat * average(g * xhat)).
template <class T>
void rmsnorm_input_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RmsNormInputGrad> op(args);
  using C = Compute<T>;
  const Tensor& x = op["x"];
  const T* gain = op["gain"].as<const T>();
  const C offset_by = static_cast<C>(op.real("offset"));
  const auto dims = static_cast<int>(op.integer("dims"));
  const std::int64_t width = x.inner(dims);
  for_rows(
      context, x,
      [&](std::int64_t row, std::int64_t offset) {
        const T* __restrict dy = op["dy"].as<const T>() + offset;
        const T* __restrict in = x.as<const T>() + offset;
        T* __restrict dx = op["dx"].as<T>() + offset;
        const C rstd = op["rstd"].as<const C>()[row];
        const C product = lane_sum<C>(width, [=](std::int64_t i) {
          return load(dy[i]) * (offset_by + load(gain[i])) * (load(in[i]) * rstd);
        });
        const C slope = product / static_cast<C>(width);
#pragma omp simd
        for (std::int64_t i = 0; i < width; ++i)
          store(dx[i], rstd * (load(dy[i]) * (offset_by + load(gain[i])) - load(in[i]) * rstd * slope));
        add_residual(op["residual"].as<const T>(), offset, width, dx);
      },
      dims);
}

template <class T, class Sum>
void rmsnorm_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RmsNormWeightGrad> op(args);
  const Tensor &dy = op["dy"], &x = op["x"];
  const auto* rstd = op["rstd"].as<const Compute<T>>();
  const RowGroups shape = RowGroups::of(dy, dy.inner(static_cast<int>(op.integer("dims"))));
  const auto add_row = [&](SumTile<Sum> tile, std::int64_t row, std::int64_t column, std::int64_t n) {
    const T* __restrict d = dy.as<const T>() + row * shape.width + column;
    const T* __restrict in = x.as<const T>() + row * shape.width + column;
    using Term = Compute<Sum>;
    Term* __restrict dgain = tile[0];
    const Term row_rstd = rstd[row];
#pragma omp simd
    for (std::int64_t c = 0; c < n; ++c)
      dgain[c] += static_cast<Term>(load(d[c])) * (static_cast<Term>(load(in[c])) * row_rstd);
  };
  add_column_sums<Sum, 1>(*context.workers, shape, {ColumnSums<Sum>::of(args, op.at("dgain"))}, add_row);
}

bool statistics_fit(const OpShape& s, int values, std::initializer_list<int> statistics) {
  for (int i : statistics)
    if (s.operand[i].dtype != OpShape::statistics(s.operand[values].dtype)) return false;
  return true;
}

Kernel select_layernorm(const OpShape& shape) {
  const ShapeOf<ops::LayerNorm> s(shape);
  if (!same_type(s, {"x", "gain", "bias", "y"}) || !statistics_fit(s, s.at("x"), {4, 5})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return layernorm<T>; });
}

Kernel select_layernorm_input_grad(const OpShape& shape) {
  const ShapeOf<ops::LayerNormInputGrad> s(shape);
  if (!same_type(s, {"dy", "x", "gain", "residual", "dx"}) || !statistics_fit(s, s.at("dy"), {3, 4}))
    return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return layernorm_input_grad<T>; });
}

Kernel select_layernorm_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::LayerNormWeightGrad> s(shape);
  if (!same_type(s, {"dy", "x"}) || !statistics_fit(s, s.at("dy"), {2, 3})) return nullptr;
  const OperandShape &dgain = s["dgain"], &dbias = s["dbias"];
  if (dgain.present && !same_type(s, {"dgain", "dbias"})) return nullptr;
  return choose_accumulation(s["dy"].dtype, (dgain.present ? dgain : dbias).dtype,
                             []<class T, class Sum>() -> Kernel { return layernorm_weight_grad<T, Sum>; });
}

Kernel select_rmsnorm(const OpShape& shape) {
  const ShapeOf<ops::RmsNorm> s(shape);
  if (!same_type(s, {"x", "gain", "y"}) || !statistics_fit(s, s.at("x"), {3})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return rmsnorm<T>; });
}

Kernel select_rmsnorm_input_grad(const OpShape& shape) {
  const ShapeOf<ops::RmsNormInputGrad> s(shape);
  if (!same_type(s, {"dy", "x", "gain", "residual", "dx"}) || !statistics_fit(s, s.at("dy"), {3}))
    return nullptr;
  return choose_value(s["dy"].dtype, []<class T>() -> Kernel { return rmsnorm_input_grad<T>; });
}

Kernel select_rmsnorm_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::RmsNormWeightGrad> s(shape);
  if (!same_type(s, {"dy", "x"}) || !statistics_fit(s, s.at("dy"), {2})) return nullptr;
  return choose_accumulation(s["dy"].dtype, s["dgain"].dtype,
                             []<class T, class Sum>() -> Kernel { return rmsnorm_weight_grad<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> norm_kernels();
std::vector<KernelDef> norm_kernels() {
  return {{ops::LayerNorm::kind, select_layernorm},
          {ops::LayerNormInputGrad::kind, select_layernorm_input_grad},
          {ops::LayerNormWeightGrad::kind, select_layernorm_weight_grad, nullptr,
           bits_of<ops::LayerNormWeightGrad>("dgain", "dbias")},
          {ops::RmsNorm::kind, select_rmsnorm},
          {ops::RmsNormInputGrad::kind, select_rmsnorm_input_grad},
          {ops::RmsNormWeightGrad::kind, select_rmsnorm_weight_grad, nullptr,
           bits_of<ops::RmsNormWeightGrad>("dgain")}};
}

}  // namespace prun::cpu::PRUN_ISA
