#include "norm/cuda.hpp"

#include "tests/cuda/device_value.hpp"

namespace prun::test::norm_test {
namespace {

using Norms = CudaTest;

constexpr double eps = 1e-5;

// A case on the host.
template <class T>
struct Case {
  std::int64_t rows, width;
  Value x, residual, gain, bias, dy;

  Case(std::int64_t r, std::int64_t w)
      : rows(r),
        width(w),
        x(random_value(dtype_of<T>(), {r, w}, 1, 2)),
        residual(random_value(dtype_of<T>(), {r, w}, 2)),
        gain(random_value(dtype_of<T>(), {w}, 3)),
        bias(random_value(dtype_of<T>(), {w}, 4)),
        dy(random_value(dtype_of<T>(), {r, w}, 5)) {
    for (std::size_t i = 0; i < x.size(); ++i) x.set(i, x[i] + 3);  // a mean to take away
  }
  Value values() const { return Value(dtype_of<T>(), {rows, width}); }
  Value statistics() const { return Value(sum_type<T>(), {rows}); }
  double offset = 0;  // of rmsnorm's gain

  std::vector<Value> forward(bool centered, const Value& in, bool with_bias) const {
    const std::vector<Attr> attrs = {{.f = eps}, {.f = offset}, {.i = 1}};
    if (!centered) return cpu("rmsnorm", {in, gain, values(), statistics()}, attrs);
    return cpu("layernorm", {in, gain, with_bias ? bias : Value(), values(), statistics(), statistics()},
               attrs);
  }
};

template <class T>
void expect_forward(const Case<T>& c, bool centered, bool with_residual, std::int64_t offset) {
  const Value sum = with_residual ? cpu("add", {c.x, c.residual, c.values()})[2] : c.x;
  const std::vector<Value> want = c.forward(centered, sum, with_residual);
  OnDevice x(c.x, offset), residual(c.residual, offset), gain(c.gain, offset), bias(c.bias, offset);
  OnDevice written(dtype_of<T>(), {c.rows, c.width}, offset), y(dtype_of<T>(), {c.rows, c.width}, offset);
  OnDevice mean(sum_type<T>(), {c.rows}), rstd(sum_type<T>(), {c.rows});
  const cuda::NormForward<T> norm = {x.as<T>(),
                                     with_residual ? residual.as<T>() : nullptr,
                                     written.as<T>(),
                                     gain.as<T>(),
                                     with_residual ? bias.as<T>() : nullptr,
                                     y.as<T>(),
                                     mean.as<cuda::Compute<T>>(),
                                     rstd.as<cuda::Compute<T>>(),
                                     c.rows,
                                     c.width,
                                     eps,
                                     c.offset};
  if (centered)
    cuda::layernorm(norm, nullptr);
  else
    cuda::rmsnorm(norm, nullptr);
  // A single column has no variance: rstd blows up what rounding leaves of x - mean.
  const double close = tolerance(dtype_of<T>()), exact = tolerance(sum_type<T>()) * (c.width == 1 ? 500 : 4);
  if (with_residual) {
    EXPECT_EQ(written.value().bytes(), sum.bytes()) << "x + residual";
  }
  expect_close(y.value(), want[centered ? 3 : 2].numbers(), close, "y");
  if (centered) expect_close(mean.value(), want[4].numbers(), exact, "mean");
  expect_close(rstd.value(), want.back().numbers(), exact, "rstd");
}

TEST_F(Norms, ForwardWithAndWithoutAResidual) {
  for_rows([]<class T>(std::int64_t rows, std::int64_t width, std::int64_t offset) {
    const Case<T> c(rows, width);
    for (bool centered : {false, true})
      for (bool residual : {false, true}) expect_forward(c, centered, residual, offset);
  });
}

// What is left out of a backward.
struct Parts {
  bool residual, dx, weights;
  bool begins = false;  // the sums
  bool summed = false;  // whether the residual is summed too
};

template <class S, class T>
void expect_backward(const Case<T>& c, bool centered, const Parts& parts, std::int64_t offset) {
  using C = cuda::Compute<T>;
  const std::vector<Value> forward = c.forward(centered, c.x, true);
  const Value mean = centered ? forward[4] : c.statistics(), rstd = forward.back();
  const std::string name = centered ? "layernorm" : "rmsnorm";
  const Value some = random_value(dtype_of<S>(), {c.width}, 9), before = parts.begins ? zeros(some) : some;
  std::vector<Value> input = {c.dy, c.x, c.gain}, weight = {c.dy, c.x};
  for (std::vector<Value>* call : {&input, &weight}) {
    if (centered) call->push_back(mean);
    call->push_back(rstd);
  }
  input.push_back(Value());
  input.push_back(c.values());
  weight.push_back(before);
  if (centered) weight.push_back(before);
  Value dx_want = cpu(name + "_input_grad", input, {{.f = c.offset}, {.i = 1}}).back();
  if (parts.residual) dx_want = cpu("add", {dx_want, c.residual, c.values()})[2];
  const std::vector<Value> weights_want = centered ? cpu_sums(name + "_weight_grad", weight, {4, 5})
                                                   : cpu_sums(name + "_weight_grad", weight, {3}, {{.i = 1}});

  OnDevice dy(c.dy, offset), x(c.x, offset), gain(c.gain, offset), residual(c.residual, offset);
  OnDevice means(mean), rstds(rstd), dx(dtype_of<T>(), {c.rows, c.width}, offset),
      dgain(parts.begins ? poison(before) : before), dbias(parts.begins ? poison(before) : before),
      residual_sum(parts.begins ? poison(before) : before);
  {
    const DeviceWorkspace workspace(cuda::norm_backward_workspace<T>(c.rows, c.width));
    const cuda::NormBackward<T, S> norm = {
        dy.as<T>(),
        x.as<T>(),
        gain.as<T>(),
        means.as<C>(),
        rstds.as<C>(),
        parts.residual ? residual.as<T>() : nullptr,
        parts.dx ? dx.as<T>() : nullptr,
        {parts.weights ? dgain.as<S>() : nullptr, parts.begins},
        {parts.weights && centered ? dbias.as<S>() : nullptr, parts.begins},
        c.rows,
        c.width,
        workspace.data(),
        c.offset,
        {parts.summed ? residual_sum.as<S>() : nullptr, parts.begins}};
    if (centered)
      cuda::layernorm_backward(norm, nullptr);
    else
      cuda::rmsnorm_backward(norm, nullptr);
  }
  // One column: rstd is near 1 / root(eps), and multiplies what rounding leaves.
  const double wide = c.width == 1 ? 1e4 : 1;
  if (parts.dx) expect_close(dx.value(), dx_want.numbers(), 2 * wide * tolerance(dtype_of<T>()), "dx");
  const double sums = close_sums<S>(16 * wide);
  const std::size_t first = centered ? 4 : 3;
  expect_close(dgain.value(), (parts.weights ? weights_want[first] : before).numbers(), sums, "dgain");
  if (centered)
    expect_close(dbias.value(), (parts.weights ? weights_want[5] : before).numbers(), sums, "dbias");
  if (parts.summed)
    expect_close(residual_sum.value(), cpu_sums("bias_grad", {c.residual, before}, {1})[1].numbers(), sums,
                 "sum of the residual");
}

TEST_F(Norms, BackwardInOnePassAndInParts) {
  for_row_sums([]<class T, class S>(std::int64_t rows, std::int64_t width, std::int64_t offset) {
    const Case<T> c(rows, width);
    for (bool centered : {false, true})
      for (const Parts& parts : {Parts{true, true, true},
                                 {false, true, true},
                                 {true, true, false},
                                 {false, false, true},
                                 {false, false, true, true},
                                 {true, true, true, false, true},
                                 {true, true, true, true, true}})
        expect_backward<S>(c, centered, parts, offset);
  });
}

TEST_F(Norms, GainsFromOne) {
  for_row_sums([]<class T, class S>(std::int64_t rows, std::int64_t width, std::int64_t offset) {
    Case<T> c(rows, width);
    c.offset = 1;
    expect_forward(c, false, true, offset);
    expect_backward<S>(c, false, {true, true, true}, offset);
    expect_backward<S>(c, false, {false, true, false}, offset);
  });
}

// Widths that take each form of the kernels.
TEST_F(Norms, WideRows) {
  for (std::int64_t width : {2048, 4096, 8192, 16384, 24576}) {
    SCOPED_TRACE(width);
    const Case<bf16> c(5, width);
    const Case<float> f(5, width);
    for (bool centered : {false, true}) {
      expect_forward(c, centered, true, 0);
      expect_backward<float>(c, centered, {true, true, true}, 0);
      expect_backward<bf16>(c, centered, {true, true, true}, 0);
      expect_backward<bf16>(c, centered, {true, true, true, true, true}, 0);
      expect_forward(f, centered, true, 0);
      expect_backward<float>(f, centered, {true, true, true}, 0);
      expect_backward<float>(f, centered, {true, true, true, false, true}, 0);
    }
  }
}

// More rows than blocks have at once, in each form of the kernel that sums the residual.
TEST_F(Norms, ManyRowsAndTheResidualsSum) {
  for (std::int64_t width : {768, 520, 1600}) {
    SCOPED_TRACE(width);
    const Case<bf16> c(on_host ? 61 : 3001, width);
    for (bool begins : {false, true}) {
      expect_backward<float>(c, true, {true, true, true, begins, true}, 0);
      expect_backward<bf16>(c, true, {true, true, true, begins, true}, 0);
    }
    const Case<float> f(on_host ? 61 : 3001, width);
    expect_backward<float>(f, true, {true, true, true, true, true}, 0);
  }
}

TEST_F(Norms, WeightGradientsHaveTheSameBitsEveryTime) {
  const Case<bf16> c(3000, 768);
  const Value rstd = c.forward(false, c.x, false).back();
  OnDevice dy(c.dy), x(c.x), gain(c.gain), rstds(rstd), residual(c.residual),
      dx(DType::bf16, {c.rows, c.width});
  std::vector<char> first;
  for (int turn = 0; turn < 3; ++turn) {
    OnDevice dgain(Value(DType::f32, {c.width})), residual_sum(Value(DType::f32, {c.width}));
    const DeviceWorkspace workspace(cuda::norm_backward_workspace<bf16>(c.rows, c.width));
    cuda::rmsnorm_backward<bf16, float>(
        {dy.as<bf16>(), x.as<bf16>(), gain.as<bf16>(), nullptr, rstds.as<float>(), residual.as<bf16>(),
         dx.as<bf16>(), dgain.as<float>(), nullptr, c.rows, c.width, workspace.data(), 0,
         residual_sum.as<float>()},
        nullptr);
    std::vector<char> bits = dgain.value().bytes();
    const std::vector<char> more = residual_sum.value().bytes();
    bits.insert(bits.end(), more.begin(), more.end());
    if (turn == 0) first = bits;
    EXPECT_EQ(bits, first);
  }
}

}  // namespace
}  // namespace prun::test::norm_test
