// Launches the ops that updates of whole tensors are made of: orthogonalize, by products of matrices,
// adafactor's ops, pack and unpack.
#include "whole_update/cuda.hpp"

#include <algorithm>

#include "cuda/check.hpp"
#include "linear_work.hpp"
#include "matrix_pieces.hpp"
#include "optimizer/cuda.hpp"
#include "prun/ops/whole_update.hpp"

namespace prun::cuda {
namespace {

// ---------------------------------------------------------------- orthogonalize

std::int64_t align(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Holds memory of matrices of one shape that are worked on together. T is the type that is multiplied, C that
// of products and their sums.
template <class T, class C>
class Room {
 public:
  // At least one matrix is worked on at a time, and as many as these bytes hold.
  static constexpr std::int64_t enough = std::int64_t{256} << 20;

  static std::int64_t together(const MatrixPieces& pieces) {
    const std::int64_t one = Room(nullptr, pieces.first, 1).bytes() - align(gemm_workspace);
    return std::clamp<std::int64_t>(enough / one, 1, pieces.count);
  }

  Room(void* workspace, const MatrixPiece& piece, std::int64_t count)
      : begin_(static_cast<char*>(workspace)), next_(begin_) {
    const std::int64_t n = count * piece.rows * piece.columns, least = std::min(piece.rows, piece.columns),
                       square_size = count * least * least;
    gemm = take<char>(gemm_workspace);
    x = take<T>(n), y = take<C>(n);
    a = take<T>(square_size), b = take<T>(square_size), square = take<C>(square_size);
    sums = take<double>(norms_workspace(count) / std::int64_t{sizeof(double)});
  }

  std::int64_t bytes() const { return next_ - begin_; }

  T *x, *a, *b;
  C *square, *y;
  double* sums;
  char* gemm;

 private:
  template <class Type>
  Type* take(std::int64_t count) {
    return reinterpret_cast<Type*>(
        std::exchange(next_, next_ + align(count * static_cast<std::int64_t>(sizeof(Type)))));
  }

  char *begin_, *next_;
};

// Computes c [m, n] = a * b for each matrix of its batch.
template <class T, class Out>
Work multiplied(Product product, const T* a, const T* b, Out* c, void* workspace, Libraries& libraries,
                Stream stream) {
  product.input = dtype_of<T>();
  product.output = dtype_of<Out>();
  product.alignment = alignment_of({a, b, c});
  if (product.batch > 1)
    product.alignment = std::min(
        product.alignment,
        alignment_of({a + product.m * product.k, b + product.k * product.n, c + product.m * product.n}));
  return product_work(product, {a, b, nullptr, nullptr, c, workspace}, libraries, stream);
}

// Binds `count` of the pieces, from number `first` on.
template <class T, class C>
Work bind_matrices(const KernelArgs& args, const MatrixPieces& pieces, std::int64_t first, std::int64_t count,
                   Libraries& libraries, Stream stream) {
  const ArgsOf<ops::Orthogonalize> op(args);
  const std::int64_t rows = pieces.first.rows, columns = pieces.first.columns, k = std::min(rows, columns);
  const Room<T, C> room(args.workspace, pieces.first, count);
  const MatrixRun run{rows * columns, count, pieces.stride};
  const bool wide = rows <= columns;
  const std::int64_t offset = pieces.first.offset + first * pieces.stride;
  const C* const from = op["x"].as<const C>() + offset;
  C* const to = op["y"].as<C>() + offset;
  const auto multiply = [&](Product product, const T* a, const T* b, auto* c) {
    product.batch = count;
    return multiplied(product, a, b, c, room.gemm, libraries, stream);
  };
  const Work gram =
                 wide ? multiply({.m = k, .n = k, .k = columns, .transpose_b = true}, room.x, room.x, room.a)
                      : multiply({.m = k, .n = k, .k = rows, .transpose_a = true}, room.x, room.x, room.a),
             square = multiply({.m = k, .n = k, .k = k}, room.a, room.a, room.square),
             step = wide ? multiply({.m = rows, .n = columns, .k = k}, room.b, room.x, room.y)
                         : multiply({.m = rows, .n = columns, .k = k}, room.x, room.b, room.y);
  const double a = op.real("a"), b = op.real("b"), c = op.real("c"), eps = op.real("eps");
  return [=, steps = op.integer("steps"), scale = pieces.first.scale(op.integer("scale"))](Stream on) {
    divide_by_norms<C, T>(run, from, eps, room.x, room.sums, on);
    for (std::int64_t i = 0; i < steps; ++i) {
      gram(on);
      square(on);
      mix<T, C>(b, room.a, c, room.square, room.b, count * k * k, on);
      step(on);
      mix<T, C>(a, room.x, 1.0, room.y, room.x, count * run.n, on);
    }
    scale_out<T, C>(run, scale, room.x, to, on);
  };
}

template <class T, class C>
Work bind_orthogonalize_of(const KernelArgs& args, Libraries& libraries, Stream stream) {
  const ArgsOf<ops::Orthogonalize> op(args);
  if (!is_dealt_here(op, args.layer)) {
    const auto bytes = static_cast<std::size_t>(op["y"].elements() * size_of(dtype_of<C>()));
    return [to = op["y"].as<C>(), bytes](Stream on) {
      check(cudaMemsetAsync(to, 0, bytes, on), "cudaMemsetAsync");
    };
  }
  std::vector<Work> matrices;
  for (const MatrixPieces& pieces : alike_pieces(op["x"], matrix_cuts(op))) {
    const std::int64_t together = Room<T, C>::together(pieces);
    for (std::int64_t first = 0; first < pieces.count; first += together)
      matrices.push_back(bind_matrices<T, C>(args, pieces, first, std::min(together, pieces.count - first),
                                             libraries, stream));
  }
  return [matrices = std::move(matrices)](Stream on) {
    for (const Work& matrix : matrices) matrix(on);
  };
}

Work bind_orthogonalize(Launches launches, Libraries& libraries, Stream stream) {
  const KernelArgs& args = launches.front().args;
  const ArgsOf<ops::Orthogonalize> op(args);
  if (op.integer("narrow") != 0) return bind_orthogonalize_of<bf16, float>(args, libraries, stream);
  return op["x"].dtype == DType::f64 ? bind_orthogonalize_of<double, double>(args, libraries, stream)
                                     : bind_orthogonalize_of<float, float>(args, libraries, stream);
}

Kernel select_orthogonalize(const OpShape& shape) {
  const ShapeOf<ops::Orthogonalize> s(shape);
  const DType type = s["x"].dtype;
  const bool known = type == DType::f32 || (type == DType::f64 && s.integer("narrow") == 0);
  return known && s["y"].dtype == type ? runs_when_bound : nullptr;
}

template <class T, class C>
std::int64_t workspace_of(const OpShape& shape) {
  const ShapeOf<ops::Orthogonalize> s(shape);
  std::int64_t most = 0;
  for (const MatrixPieces& pieces : alike_pieces(s["x"], matrix_cuts(s)))
    most = std::max(most, Room<T, C>(nullptr, pieces.first, Room<T, C>::together(pieces)).bytes());
  return most;
}

std::int64_t orthogonalize_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::Orthogonalize> s(shape);
  if (s.integer("narrow") != 0) return workspace_of<bf16, float>(s);
  return s["x"].dtype == DType::f64 ? workspace_of<double, double>(s) : workspace_of<float, float>(s);
}

// ---------------------------------------------------------------- adafactor

template <class Op>
FactoredShape factored_shape(const ArgsOf<Op>& op) {
  const Tensor& x = op["gradient"];
  const int first = static_cast<int>(op.integer("batch")),
            last = x.rank - static_cast<int>(op.integer("columns"));
  FactoredShape shape{1, 1, 1};
  for (int d = 0; d < x.rank; ++d)
    (d < first ? shape.batch : d < last ? shape.rows : shape.columns) *= x.dim[d];
  return shape;
}

constexpr auto bind_squares = []<class T>(const KernelArgs& args, Libraries&, Stream) -> Work {
  const ArgsOf<ops::FactoredSquares> op(args);
  using C = Compute<T>;
  return [shape = factored_shape(op), gradient = op["gradient"].as<const T>(),
          clip = op["clip"].as<const double>(), rows = op["rows"].as<C>(), columns = op["columns"].as<C>(),
          total = op["total"].as<C>()](Stream on) {
    factored_squares<T, C>(shape, gradient, clip, rows, columns, total, on);
  };
};

constexpr auto bind_direction = []<class T>(const KernelArgs& args, Libraries&, Stream) -> Work {
  const ArgsOf<ops::FactoredDirection> op(args);
  using C = Compute<T>;
  return [shape = factored_shape(op), gradient = op["gradient"].as<const T>(),
          clip = op["clip"].as<const double>(), rows = op["rows"].as<const C>(),
          columns = op["columns"].as<const C>(), total = op["total"].as<const C>(),
          direction = op["direction"].as<C>(), squares = op["squares"].as<double>(), eps = op.real("eps"),
          n = op["gradient"].elements(), workspace = args.workspace](Stream on) {
    factored_direction<T, C>(shape, gradient, clip, rows, columns, total, eps, direction, on);
    check(cudaMemsetAsync(squares, 0, sizeof(double), on), "cudaMemsetAsync");
    const Values<C> values[] = {{direction, n}};
    sum_squares<C>(values, squares, workspace, on);
  };
};

constexpr auto bind_square_sum = []<class T>(const KernelArgs& args, Libraries&, Stream) -> Work {
  const ArgsOf<ops::SquareSum> op(args);
  return [x = op["x"].as<const T>(), n = op["x"].elements(), sum = op["sum"].as<double>(),
          workspace = args.workspace](Stream on) {
    check(cudaMemsetAsync(sum, 0, sizeof(double), on), "cudaMemsetAsync");
    const Values<T> values[] = {{x, n}};
    sum_squares<T>(values, sum, workspace, on);
  };
};

std::int64_t squares_workspace(const OpShape&, std::int32_t) { return sum_squares_workspace(); }

template <class C>
void mean(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::MeanUpdate> op(args);
  mean_update<C>(op["mean"].as<C>(), op["sum"].as<const C>(), op["step"].as<const double>(),
                 op["keep"].as<const double>(), op.real("decay"), op.real("count"), op["mean"].elements(),
                 stream_of(context));
}

template <class C>
void scale(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ScaleBy> op(args);
  scale_by<C>(op["x"].as<const C>(), op["factor"].as<const double>(), op["y"].as<C>(), op["x"].elements(),
              stream_of(context));
}

void factor(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::AdafactorFactor> op(args);
  const AdafactorNumbers numbers{op["squares"].as<const double>(), op["weights"].as<const double>(),
                                 op["lr"].as<const double>(), op["step"].as<const double>(),
                                 op["factor"].as<double>()};
  adafactor_factor(numbers, op.real("count"), op.real("least"), op.real("limit"), op.real("lr_scale"),
                   stream_of(context));
}

Kernel select_squares(const OpShape& shape) {
  const ShapeOf<ops::FactoredSquares> s(shape);
  if (!all_double(s, {"clip"}) || !computed_type(s, s["gradient"].dtype, {"rows", "columns", "total"}))
    return nullptr;
  return by_value(s["gradient"].dtype, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_direction(const OpShape& shape) {
  const ShapeOf<ops::FactoredDirection> s(shape);
  if (!all_double(s, {"clip"}) || !all_double(s, {"squares"})) return nullptr;
  if (!computed_type(s, s["gradient"].dtype, {"rows", "columns", "total", "direction"})) return nullptr;
  return by_value(s["gradient"].dtype, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_square_sum(const OpShape& shape) {
  const ShapeOf<ops::SquareSum> s(shape);
  if (!all_double(s, {"sum"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_mean(const OpShape& shape) {
  const ShapeOf<ops::MeanUpdate> s(shape);
  if (!all_double(s, {"step", "keep"}) || !same_type(s, {"mean", "sum"})) return nullptr;
  return s["mean"].dtype == DType::f64 ? mean<double> : s["mean"].dtype == DType::f32 ? mean<float> : nullptr;
}

Kernel select_scale(const OpShape& shape) {
  const ShapeOf<ops::ScaleBy> s(shape);
  if (!all_double(s, {"factor"}) || !same_type(s, {"x", "y"})) return nullptr;
  return s["x"].dtype == DType::f64 ? scale<double> : s["x"].dtype == DType::f32 ? scale<float> : nullptr;
}

Kernel select_factor(const OpShape& shape) {
  const ShapeOf<ops::AdafactorFactor> s(shape);
  return all_double(s, {"squares", "weights", "lr", "step", "factor"}) ? factor : nullptr;
}

// ---------------------------------------------------------------- pack, unpack

void copy_bytes(void* to, const void* from, std::int64_t bytes, const KernelContext& context) {
  if (bytes > 0)
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                          stream_of(context)),
          "cudaMemcpyAsync");
}

void blank(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Blank> op(args);
  const Tensor& x = op["x"];
  check(cudaMemsetAsync(x.data, 0, static_cast<std::size_t>(x.elements() * size_of(x.dtype)),
                        stream_of(context)),
        "cudaMemsetAsync");
}

void unpack(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Unpack> op(args);
  const Tensor &packed = op["packed"], &tensor = op["tensor"];
  const std::int64_t size = size_of(tensor.dtype);
  copy_bytes(tensor.data, packed.as<const char>() + op.integer("offset") * size, tensor.elements() * size,
             context);
}

void pack(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Pack> op(args);
  const Tensor &tensor = op["tensor"], &packed = op["packed"];
  const PackedRange range = packed_range(tensor, packed, op.integer("offset"));
  const std::int64_t size = size_of(tensor.dtype);
  copy_bytes(packed.as<char>() + range.to * size, tensor.as<const char>() + range.from * size,
             range.count * size, context);
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

std::vector<DeviceOp> whole_update_ops(const OpChoices&) {
  return {{{ops::Orthogonalize::kind, select_orthogonalize, orthogonalize_workspace}, bind_orthogonalize},
          {{ops::FactoredSquares::kind, select_squares}, bind_typed<bind_squares>},
          {{ops::FactoredDirection::kind, select_direction, squares_workspace}, bind_typed<bind_direction>},
          {{ops::SquareSum::kind, select_square_sum, squares_workspace}, bind_typed<bind_square_sum>},
          {{ops::MeanUpdate::kind, select_mean}},
          {{ops::AdafactorFactor::kind, select_factor}},
          {{ops::ScaleBy::kind, select_scale}},
          {{ops::Blank::kind, select_blank}},
          {{ops::Unpack::kind, select_unpack}},
          {{ops::Pack::kind, select_pack}}};
}

}  // namespace prun::cuda
