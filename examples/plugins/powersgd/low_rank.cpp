// The products of PowerSGD, of a matrix whose rows and columns may be several dimensions each. Kernels for
// the CPU.
#include "prun/plugin.hpp"

namespace {

using namespace prun;

void dims_of(OpShape& s, int to, const OperandShape& a, int from_a, int end_a, const OperandShape& b,
             int from_b) {
  Dim dims[max_dims];
  int n = 0;
  for (int d = from_a; d < end_a; ++d) dims[n++] = a.dims[d];
  for (int d = from_b; d < b.rank; ++d) dims[n++] = b.dims[d];
  s.output(to, a.dtype, dims, n);
}

// In all of these, a matrix is [rows.., columns..], P is [rows.., sketch] and Q is [sketch, columns..].
struct SketchRows {
  static constexpr const char* kind = "sketch_rows";
  static constexpr const char* help = "p = matrix q^T";
  static constexpr OperandDef operands[] = {{"matrix"}, {"q"}, {"p", Access::write}};
  static void rule(OpShape& s) {
    const OperandShape matrix = s.operand[0], q = s.operand[1];
    const int rows = matrix.rank - (q.rank - 1);
    OperandShape first = q;
    first.rank = 1;
    dims_of(s, 2, matrix, 0, rows, first, 0);
    s.sum(0, rows, matrix.rank);
    s.pass_partial({0});
  }
};

struct SketchColumns {
  static constexpr const char* kind = "sketch_columns";
  static constexpr const char* help = "q = p^T matrix";
  static constexpr OperandDef operands[] = {{"matrix"}, {"p"}, {"q", Access::write}};
  static void rule(OpShape& s) {
    const OperandShape matrix = s.operand[0], p = s.operand[1];
    dims_of(s, 2, p, p.rank - 1, p.rank, matrix, p.rank - 1);
    s.sum(0, 0, p.rank - 1);
    s.pass_partial({0});
  }
};

struct Product {
  static constexpr const char* kind = "product";
  static constexpr const char* help = "matrix = p q";
  static constexpr OperandDef operands[] = {{"p"}, {"q"}, {"matrix", Access::write}};
  static void rule(OpShape& s) {
    dims_of(s, 2, s.operand[0], 0, s.operand[0].rank - 1, s.operand[1], 1);
    s.whole(1, 0, 1);
  }
};

// Calls body(row, k, column) for all of p[row, k] and q[k, column].
template <class Body>
void each(const Tensor& p, const Tensor& q, Body&& body) {
  const std::int64_t rank = q.dim[0], columns = q.elements() / rank, rows = p.elements() / rank;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < rank; ++k)
      for (std::int64_t j = 0; j < columns; ++j) body(i * rank + k, k * columns + j, i * columns + j);
}

template <class T>
void clear(const Tensor& x) {
  for (std::int64_t i = 0; i < x.elements(); ++i) x.as<T>()[i] = 0;
}

template <class T, int p, int q, int matrix, int to>
void contract(const KernelArgs& args, const KernelContext&) {
  const Tensor* const o = args.operands;
  clear<T>(o[2]);
  each(o[p], o[q], [&](std::int64_t i, std::int64_t j, std::int64_t m) {
    T *const a = o[p].as<T>() + i, *const b = o[q].as<T>() + j, *const c = o[matrix].as<T>() + m;
    if (to == p) *a += *b * *c;
    if (to == q) *b += *a * *c;
    if (to == matrix) *c += *a * *b;
  });
}

template <Kernel in_double, Kernel in_float>
Kernel choose(const OpShape& s) {
  const DType type = s.operand[0].dtype;
  return type == DType::f64 ? in_double : type == DType::f32 ? in_float : nullptr;
}

class LowRankOps final : public OpPlugin {
 public:
  explicit LowRankOps(const Options&) {}
  std::vector<OpDef> ops() override {
    return {op_def<SketchRows>(), op_def<SketchColumns>(), op_def<Product>()};
  }
  std::vector<DeviceKernel> kernels() override {
    return {{"cpu", {"sketch_rows", choose<contract<double, 2, 1, 0, 2>, contract<float, 2, 1, 0, 2>>}},
            {"cpu", {"sketch_columns", choose<contract<double, 1, 2, 0, 2>, contract<float, 1, 2, 0, 2>>}},
            {"cpu", {"product", choose<contract<double, 0, 1, 2, 2>, contract<float, 0, 1, 2, 2>>}}};
  }
  std::vector<OpExample> examples() override {
    const Dim rows{"rows", 8}, columns{"columns", 6}, sketch{"sketch", 2};
    return {OpExample("sketch_rows").values(0, {rows, columns}).values(1, {sketch, columns}),
            OpExample("sketch_columns").values(0, {rows, columns}).values(1, {rows, sketch}),
            OpExample("product").values(0, {rows, sketch}).values(1, {sketch, columns})};
  }
};

}  // namespace

PRUN_PLUGIN(op, LowRankOps, "low-rank", "1.0.0", "Products of low rank", "", "");
