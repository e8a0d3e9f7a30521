// Implements the ops that updates of whole tensors are made of: orthogonalize, adafactor's ops, pack and
// unpack.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/gemm.hpp"
#include "cpu/lanes.hpp"
#include "cpu/values.hpp"
#include "matrix_pieces.hpp"
#include "prun/op.hpp"
#include "prun/ops/whole_update.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> whole_update_kernels();

namespace {

double scalar(const Tensor& x) { return *x.as<const double>(); }

// ---------------------------------------------------------------- orthogonalize

std::int64_t align(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

// T is the type that is multiplied, C that of products and their sums.
template <class T, class C>
class Iteration {
 public:
  Iteration(const KernelArgs& args, const Workers& workers)
      : op_(args), workers_(workers), work_(static_cast<char*>(args.workspace)) {}

  static std::int64_t bytes(const MatrixPiece& piece) {
    const std::int64_t n = piece.rows * piece.columns, k = std::min(piece.rows, piece.columns);
    return align(n * size<T>) + align(n * size<C>) + 2 * align(k * k * size<T>) + align(k * k * size<C>);
  }

  void run(const MatrixPiece& piece) {
    rows_ = piece.rows, columns_ = piece.columns, n_ = rows_ * columns_, k_ = std::min(rows_, columns_);
    x_ = take<T>(n_), a_ = take<T>(k_ * k_), b_ = take<T>(k_ * k_), square_ = take<C>(k_ * k_),
    y_ = take<C>(n_);
    const C* const from = op_["x"].template as<const C>() + piece.offset;
    begin(from);
    for (std::int64_t step = 0; step < op_.integer("steps"); ++step) iterate();
    C* const to = op_["y"].template as<C>() + piece.offset;
    const auto scale = static_cast<C>(piece.scale(op_.integer("scale")));
    each(n_, [&](std::int64_t i) { to[i] = scale * static_cast<C>(load(x_[i])); });
  }

 private:
  template <class Type>
  static constexpr std::int64_t size = static_cast<std::int64_t>(sizeof(Type));

  template <class Type>
  Type* take(std::int64_t count) {
    Type* const taken = reinterpret_cast<Type*>(work_);
    work_ += align(count * size<Type>);
    return taken;
  }

  template <class Body>
  void each(std::int64_t count, const Body& body) const {
    parallel_ranges(workers_, count, 4096, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) body(i);
    });
  }

  void begin(const C* from) {
    const double squares = lane_sum<double>(n_, [&](std::int64_t i) {
      const auto value = static_cast<double>(from[i]);
      return value * value;
    });
    const auto inverse = static_cast<C>(1 / std::max(std::sqrt(squares), op_.real("eps")));
    each(n_, [&](std::int64_t i) { store(x_[i], inverse * from[i]); });
  }

  void iterate() {
    const auto a = static_cast<C>(op_.real("a")), b = static_cast<C>(op_.real("b")),
               c = static_cast<C>(op_.real("c"));
    const bool wide = rows_ <= columns_;
    const Matrix<const T> x = row_major<const T>(x_, rows_, columns_);
    const Matrix<T> gram = row_major(a_, k_, k_);
    if (wide)
      gemm<T, T, T>(workers_, x, x.transposed(), gram, false, nullptr, work_);
    else
      gemm<T, T, T>(workers_, x.transposed(), x, gram, false, nullptr, work_);
    gemm<T, T, C>(workers_, gram, gram, row_major(square_, k_, k_), false, nullptr, work_);
    each(k_ * k_, [&](std::int64_t i) { store(b_[i], b * static_cast<C>(load(a_[i])) + c * square_[i]); });
    const Matrix<const T> by = row_major<const T>(b_, k_, k_);
    if (wide)
      gemm<T, T, C>(workers_, by, x, row_major(y_, rows_, columns_), false, nullptr, work_);
    else
      gemm<T, T, C>(workers_, x, by, row_major(y_, rows_, columns_), false, nullptr, work_);
    each(n_, [&](std::int64_t i) { store(x_[i], a * static_cast<C>(load(x_[i])) + y_[i]); });
  }

  const ArgsOf<ops::Orthogonalize> op_;
  const Workers& workers_;
  char* work_;
  std::int64_t rows_ = 0, columns_ = 0, n_ = 0, k_ = 0;
  T *x_ = nullptr, *a_ = nullptr, *b_ = nullptr;
  C *square_ = nullptr, *y_ = nullptr;
};

template <class T, class C>
void orthogonalize(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Orthogonalize> op(args);
  if (!is_dealt_here(op, args.layer)) {
    std::fill_n(op["y"].as<C>(), op["y"].elements(), C(0));
    return;
  }
  for (const MatrixPiece& piece : matrix_pieces(op["x"], matrix_cuts(op)))
    Iteration<T, C>(args, *context.workers).run(piece);
}

Kernel select_orthogonalize(const OpShape& shape) {
  const ShapeOf<ops::Orthogonalize> s(shape);
  const DType type = s["x"].dtype;
  if (type != s["y"].dtype) return nullptr;
  if (s.integer("narrow") != 0) return type == DType::f32 ? orthogonalize<bf16, float> : nullptr;
  return choose_state(type, []<class T>() -> Kernel { return orthogonalize<T, T>; });
}

std::int64_t orthogonalize_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<ops::Orthogonalize> s(shape);
  std::int64_t most = 0;
  const bool narrow = s.integer("narrow") != 0, wide = s["x"].dtype == DType::f64;
  for (const MatrixPiece& piece : matrix_pieces(s["x"], matrix_cuts(s))) {
    const std::int64_t own = narrow ? Iteration<bf16, float>::bytes(piece)
                             : wide ? Iteration<double, double>::bytes(piece)
                                    : Iteration<float, float>::bytes(piece);
    const std::int64_t longest = std::max(piece.rows, piece.columns);
    most = std::max(most, own + gemm_workspace(threads, longest, longest, longest, wide ? 8 : 4));
  }
  return most;
}

// ---------------------------------------------------------------- adafactor

struct Factored {
  std::int64_t batch = 1, rows = 1, columns = 1;

  template <class Op>
  explicit Factored(const ArgsOf<Op>& op) {
    const Tensor& x = op["gradient"];
    const int first = static_cast<int>(op.integer("batch")),
              last = x.rank - static_cast<int>(op.integer("columns"));
    for (int d = 0; d < x.rank; ++d) (d < first ? batch : d < last ? rows : columns) *= x.dim[d];
  }
};

template <class T>
void factored_squares(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::FactoredSquares> op(args);
  using C = Compute<T>;
  const Factored of(op);
  const T* const gradient = op["gradient"].as<const T>();
  C *const rows = op["rows"].as<C>(), *const columns = op["columns"].as<C>(),
           *const total = op["total"].as<C>();
  const auto clip = static_cast<C>(scalar(op["clip"]));
  const auto square = [=](std::int64_t i) {
    const auto value = static_cast<double>(clip * load(gradient[i]));
    return value * value;
  };
  const auto sum_row = [&](std::int64_t row) {
    return lane_sum<double>(of.columns, [&](std::int64_t j) { return square(row * of.columns + j); });
  };
  parallel_ranges(*context.workers, of.batch * of.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) rows[row] = static_cast<C>(sum_row(row));
  });
  for (std::int64_t b = 0; b < of.batch; ++b) {
    double all = 0;
    for (std::int64_t i = 0; i < of.rows; ++i) all += static_cast<double>(rows[b * of.rows + i]);
    total[b] = static_cast<C>(all);
  }
  parallel_ranges(*context.workers, of.batch * of.columns, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t at = begin; at < end; ++at) {
      const std::int64_t first = at / of.columns * of.rows * of.columns + at % of.columns;
      double sum = 0;
      for (std::int64_t i = 0; i < of.rows; ++i) sum += square(first + i * of.columns);
      columns[at] = static_cast<C>(sum);
    }
  });
}

template <class T>
void mean_update(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::MeanUpdate> op(args);
  if (scalar(op["keep"]) == 0) return;
  const auto mix = static_cast<T>(std::pow(scalar(op["step"]), op.real("decay")));
  const auto inverse = static_cast<T>(1 / op.real("count"));
  T* const mean = op["mean"].as<T>();
  const T* const sum = op["sum"].as<const T>();
  for (std::int64_t i = 0; i < op["mean"].elements(); ++i) mean[i] += mix * (sum[i] * inverse - mean[i]);
}

template <class T>
void factored_direction(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::FactoredDirection> op(args);
  using C = Compute<T>;
  const Factored of(op);
  const T* const gradient = op["gradient"].as<const T>();
  const C *const rows = op["rows"].as<const C>(), *const columns = op["columns"].as<const C>(),
                 *const total = op["total"].as<const C>();
  C* const direction = op["direction"].as<C>();
  const auto clip = static_cast<C>(scalar(op["clip"])),
             least = static_cast<C>(op.real("eps") * op.real("eps"));
  parallel_ranges(*context.workers, of.batch * of.rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t matrix = row / of.rows;
      const C share = total[matrix] > 0 ? rows[row] / total[matrix] : C(0);
      for (std::int64_t j = 0; j < of.columns; ++j) {
        const C square = std::max(least, share * columns[matrix * of.columns + j]);
        const std::int64_t i = row * of.columns + j;
        direction[i] = clip * load(gradient[i]) / std::sqrt(square);
      }
    }
  });
  *op["squares"].as<double>() = lane_sum<double>(op["direction"].elements(), [&](std::int64_t i) {
    const auto value = static_cast<double>(direction[i]);
    return value * value;
  });
}

template <class T>
void square_sum_of(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::SquareSum> op(args);
  const T* const x = op["x"].as<const T>();
  *op["sum"].as<double>() = lane_sum<double>(op["x"].elements(), [&](std::int64_t i) {
    const auto value = static_cast<double>(load(x[i]));
    return value * value;
  });
}

void adafactor_factor(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::AdafactorFactor> op(args);
  const double count = op.real("count"), rate = scalar(op["lr"]) * op.real("lr_scale");
  const double weights = std::max(op.real("least"), std::sqrt(scalar(op["weights"]) / count));
  const double slower = rate * std::sqrt(scalar(op["step"]));
  const double size = std::sqrt(scalar(op["squares"]) / count);
  *op["factor"].as<double>() = weights / std::max(1.0, slower) / std::max(1.0, size / op.real("limit"));
}

template <class T>
void scale_by(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ScaleBy> op(args);
  const auto factor = static_cast<T>(scalar(op["factor"]));
  const auto body = [factor](const T* __restrict from, T* __restrict to) {
#pragma omp simd
    for (int l = 0; l < block_lanes; ++l) to[l] = factor * from[l];
  };
  parallel_blocks(*context.workers, op["x"].elements(), body, op["x"].as<const T>(), op["y"].as<T>());
}

// ---------------------------------------------------------------- pack, unpack

void blank(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::Blank> op(args);
  const Tensor& x = op["x"];
  std::memset(x.as<char>(), 0, static_cast<std::size_t>(x.elements() * size_of(x.dtype)));
}

void unpack(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::Unpack> op(args);
  const Tensor &packed = op["packed"], &tensor = op["tensor"];
  const std::int64_t size = size_of(tensor.dtype);
  std::memcpy(tensor.as<char>(), packed.as<const char>() + op.integer("offset") * size,
              static_cast<std::size_t>(tensor.elements() * size));
}

void pack(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::Pack> op(args);
  const Tensor &tensor = op["tensor"], &packed = op["packed"];
  const PackedRange range = packed_range(tensor, packed, op.integer("offset"));
  const std::int64_t size = size_of(tensor.dtype);
  if (range.count > 0)
    std::memcpy(packed.as<char>() + range.to * size, tensor.as<const char>() + range.from * size,
                static_cast<std::size_t>(range.count * size));
}

bool are_double(const OpShape& s, std::initializer_list<int> operands) {
  return std::all_of(operands.begin(), operands.end(),
                     [&](int i) { return s.operand[i].present && s.operand[i].dtype == DType::f64; });
}

Kernel select_factored_squares(const OpShape& shape) {
  const ShapeOf<ops::FactoredSquares> s(shape);
  const DType type = OpShape::statistics(s["gradient"].dtype);
  if (!are_double(s, {1}) || !same_type(s, {"rows", "columns", "total"}) || s["rows"].dtype != type)
    return nullptr;
  return choose_value(s["gradient"].dtype, []<class T>() -> Kernel { return factored_squares<T>; });
}

Kernel select_mean_update(const OpShape& shape) {
  const ShapeOf<ops::MeanUpdate> s(shape);
  if (!are_double(s, {2, 3}) || !same_type(s, {"mean", "sum"})) return nullptr;
  return choose_state(s["mean"].dtype, []<class T>() -> Kernel { return mean_update<T>; });
}

Kernel select_factored_direction(const OpShape& shape) {
  const ShapeOf<ops::FactoredDirection> s(shape);
  const DType type = OpShape::statistics(s["gradient"].dtype);
  if (!are_double(s, {1, 6}) || !same_type(s, {"rows", "columns", "total", "direction"}) ||
      s["direction"].dtype != type)
    return nullptr;
  return choose_value(s["gradient"].dtype, []<class T>() -> Kernel { return factored_direction<T>; });
}

Kernel select_square_sum(const OpShape& shape) {
  const ShapeOf<ops::SquareSum> s(shape);
  if (!are_double(s, {1})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return square_sum_of<T>; });
}

Kernel select_factor(const OpShape& s) { return are_double(s, {0, 1, 2, 3, 4}) ? adafactor_factor : nullptr; }

Kernel select_scale_by(const OpShape& shape) {
  const ShapeOf<ops::ScaleBy> s(shape);
  if (!are_double(s, {1}) || !same_type(s, {"x", "y"})) return nullptr;
  return choose_state(s["x"].dtype, []<class T>() -> Kernel { return scale_by<T>; });
}

Kernel select_blank(const OpShape&) { return blank; }
Kernel select_unpack(const OpShape& shape) {
  const ShapeOf<ops::Unpack> s(shape);
  return same_type(s, {"packed", "tensor"}) ? unpack : nullptr;
}
Kernel select_pack(const OpShape& shape) {
  const ShapeOf<ops::Pack> s(shape);
  return same_type(s, {"tensor", "packed"}) ? pack : nullptr;
}

}  // namespace

std::vector<KernelDef> whole_update_kernels() {
  return {{ops::Orthogonalize::kind, select_orthogonalize, orthogonalize_workspace},
          {ops::FactoredSquares::kind, select_factored_squares},
          {ops::MeanUpdate::kind, select_mean_update},
          {ops::FactoredDirection::kind, select_factored_direction},
          {ops::SquareSum::kind, select_square_sum},
          {ops::AdafactorFactor::kind, select_factor},
          {ops::ScaleBy::kind, select_scale_by},
          {ops::Blank::kind, select_blank},
          {ops::Unpack::kind, select_unpack},
          {ops::Pack::kind, select_pack}};
}

}  // namespace prun::cpu::PRUN_ISA
