#include "tools/bench/fp8_errors/products.hpp"

#include <algorithm>
#include <cmath>
#include <thread>

#include "ops/registry.hpp"
#include "plugin_check/op_checks.hpp"
#include "prun/fp8_blocks.hpp"
#include "tools/bench/fp8_errors/rounding.hpp"

namespace prun::fp8_errors {
namespace {

Matrix matrix_of(const TrialOperand& operand, std::int64_t columns) {
  Matrix made{static_cast<std::int64_t>(operand.elements()) / columns, columns, {}};
  made.numbers.resize(operand.elements());
  for (std::size_t i = 0; i < made.numbers.size(); ++i)
    made.numbers[i] = static_cast<float>(operand.number(i));
  return made;
}

// Holds the matrix that a product gives, and what it is a sum over.
struct Shape {
  std::int64_t in = 1, out = 1, rows = 1;  // of y = x w^T, for x of so many rows
  std::int64_t height = 1, width = 1;      // of the result

  explicit Shape(const Captured& captured) {
    const bool is_weight = captured.which == Which::weight_gradient;
    const KernelCall& call = captured.call;
    const OperandShape& w = call.operands[is_weight ? 2 : 1].shape;
    for (int d = w.rank - static_cast<int>(call.attrs[0].i); d < w.rank; ++d) in *= w.dims[d].extent;
    out = w.elements() / in;
    const bool reads_gradient = captured.which == Which::input_gradient;
    rows = call.operands[0].shape.elements() / (reads_gradient ? out : in);
    height = is_weight ? out : rows;
    width = captured.which == Which::forward ? out : in;
  }
};

// Holds c = a b as it is stored: `a` is [i][k] or, turned, [k][i]; `b` is [k][j] or, turned, [j][k].
struct Factors {
  Matrix a, b;
  bool a_turned = false, b_turned = false;
  Blocks a_blocks{1, fp8_block}, b_blocks{fp8_block, fp8_block};
  bool of_gradient = true;  // says that `a` is one
};

Factors factors_of(const Captured& captured) {
  const std::vector<TrialOperand>& operands = captured.call.operands;
  const Shape s(captured);
  switch (captured.which) {
    case Which::forward:
      return {.a = matrix_of(operands[0], s.in),
              .b = matrix_of(operands[1], s.in),
              .b_turned = true,
              .of_gradient = false};
    case Which::input_gradient:
      return {.a = matrix_of(operands[0], s.out), .b = matrix_of(operands[1], s.in)};
    case Which::weight_gradient: break;
  }
  return {.a = matrix_of(operands[1], s.out),
          .b = matrix_of(operands[0], s.in),
          .a_turned = true,
          .a_blocks = {fp8_block, 1}};
}

Blocks whole(const Matrix& x) { return {x.rows, x.columns}; }

using Rows = std::vector<std::int64_t>;  // of the result

Rows some_rows(std::int64_t all, std::int64_t count) {
  Rows rows;
  for (std::int64_t i = 0; i < std::min(all, count); ++i) rows.push_back(i * all / std::min(all, count));
  return rows;
}

template <class Body>
void on_threads(std::size_t count, Body body) {
  const std::size_t threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> pool;
  for (std::size_t t = 0; t < std::min(threads, count); ++t)
    pool.emplace_back([=, &body] {
      for (std::size_t i = t; i < count; i += threads) body(i);
    });
}

// Returns sums of combine(a_ik, b_kj) for these i and all j, in fp64.
template <class Combine>
std::vector<double> sums(const Factors& of, const Matrix& a, const Matrix& b, const Rows& rows,
                         Combine combine) {
  const Matrix turned = of.b_turned ? transposed(b) : Matrix();
  const Matrix& by_k = of.b_turned ? turned : b;
  const std::int64_t width = by_k.columns;
  std::vector<double> result(rows.size() * static_cast<std::size_t>(width));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    double* const to = result.data() + r * static_cast<std::size_t>(width);
    for (std::int64_t k = 0; k < by_k.rows; ++k) {
      const auto left = static_cast<double>(of.a_turned ? a.at(k, rows[r]) : a.at(rows[r], k));
      const float* const right = by_k.numbers.data() + k * width;
      for (std::int64_t j = 0; j < width; ++j) to[j] += combine(left, static_cast<double>(right[j]));
    }
  }
  return result;
}

std::vector<double> product(const Factors& of, const Matrix& a, const Matrix& b, const Rows& rows) {
  return sums(of, a, b, rows, [](double x, double y) { return x * y; });
}

double norm_of_terms(const Factors& of, const Rows& rows) {
  double squares = 0;
  for (const double sum : sums(of, of.a, of.b, rows, [](double x, double y) { return x * x * y * y; }))
    squares += sum;
  return std::sqrt(squares);
}

double norm(const std::vector<double>& x) {
  double squares = 0;
  for (const double one : x) squares += one * one;
  return std::sqrt(squares);
}

double apart(const std::vector<double>& x, const std::vector<double>& y) {
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) squares += (x[i] - y[i]) * (x[i] - y[i]);
  return std::sqrt(squares);
}

double error_of(const Matrix& rounded, const Matrix& exact) {
  double off = 0, all = 0;
  for (std::size_t i = 0; i < exact.numbers.size(); ++i) {
    const auto x = static_cast<double>(exact.numbers[i]), y = static_cast<double>(rounded.numbers[i]);
    off += (x - y) * (x - y);
    all += x * x;
  }
  return all == 0 ? 0 : std::sqrt(off / all);
}

// Multiplies on a device, product by product.
class OnDevice {
 public:
  explicit OnDevice(DeviceInterface& device) : device_(device), launches_(device) {}

  // Returns these rows of what the op gives.
  std::vector<double> multiply(const Captured& captured, bool fp8, const Rows& rows) {
    KernelCall call = captured.call;
    call.def = &ops_.find(captured.op);
    call.attrs[1].i = fp8 ? 1 : 0;
    const KernelDef* const kernel = device_.kernel(captured.op);
    if (!kernel) throw_error(ErrorCode::unsupported, "the device has no kernel for ", captured.op);
    const TrialOperand made = launches_.launch(*kernel, call).back();
    const Shape shape(captured);
    std::vector<double> numbers;
    for (const std::int64_t row : rows)
      for (std::int64_t j = 0; j < shape.width; ++j)
        numbers.push_back(made.number(static_cast<std::size_t>(row * shape.width + j)));
    return numbers;
  }

 private:
  const OpRegistry ops_;
  DeviceInterface& device_;
  DeviceLaunches launches_;
};

// Holds what a device gives, in these rows.
struct Result {
  Rows rows;
  std::vector<double> fp8, plain;
};

ProductErrors compare(const Captured& captured, const Result& result) {
  const Factors of = factors_of(captured);
  const std::vector<double> exact = product(of, of.a, of.b, result.rows);
  const double size = norm(exact), terms = norm_of_terms(of, result.rows);
  PRUN_CHECK(size > 0, captured.layer, ".", captured.weight, " multiplies zeros alone");
  const Matrix a = rounded(of.a, e4m3, of.a_blocks), b = rounded(of.b, e4m3, of.b_blocks);
  const auto as_if = [&](const Matrix& left, const Matrix& right) {
    return apart(product(of, left, right, result.rows), exact) / std::max(size, terms);
  };
  ProductErrors errors{.layer = captured.layer, .weight = captured.weight, .which = captured.which};
  errors.terms = apart(result.fp8, exact) / terms;
  errors.product = apart(result.fp8, exact) / size;
  errors.larger = std::min(errors.terms, errors.product);
  errors.compute = apart(result.plain, exact) / size;
  errors.emulated = apart(result.fp8, product(of, a, b, result.rows)) / size;
  errors.left = error_of(a, of.a);
  errors.right = error_of(b, of.b);
  errors.one_scale = as_if(rounded(of.a, e4m3, whole(of.a)), rounded(of.b, e4m3, whole(of.b)));
  if (of.of_gradient) errors.e5m2 = as_if(rounded(of.a, e5m2, of.a_blocks), b);
  return errors;
}

}  // namespace

std::vector<ProductErrors> errors_of(const std::vector<Captured>& products, DeviceInterface& device,
                                     std::int64_t rows) {
  OnDevice on(device);
  std::vector<Result> results;
  for (const Captured& one : products) {
    Result& result = results.emplace_back();
    result.rows = some_rows(Shape(one).height, rows);
    result.fp8 = on.multiply(one, true, result.rows);
    result.plain = on.multiply(one, false, result.rows);
  }
  std::vector<ProductErrors> errors(products.size());
  on_threads(products.size(), [&](std::size_t i) { errors[i] = compare(products[i], results[i]); });
  return errors;
}

}  // namespace prun::fp8_errors
