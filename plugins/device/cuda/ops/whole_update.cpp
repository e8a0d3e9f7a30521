// Launches the ops that updates of whole tensors are made of: orthogonalize, by products of matrices,
// adafactor's ops, pack and unpack.
#include "cuda/whole_update.hpp"

#include <algorithm>

#include "cuda/check.hpp"
#include "cuda/optimizer.hpp"
#include "linear_work.hpp"
#include "matrix_pieces.hpp"

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
  const std::int64_t rows = pieces.first.rows, columns = pieces.first.columns, k = std::min(rows, columns);
  const Room<T, C> room(args.workspace, pieces.first, count);
  const MatrixRun run{rows * columns, count, pieces.stride};
  const bool wide = rows <= columns;
  const std::int64_t offset = pieces.first.offset + first * pieces.stride;
  const C* const from = data<const C>(args, 0) + offset;
  C* const to = data<C>(args, 2) + offset;
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
  const double a = args.attrs[6].f, b = args.attrs[7].f, c = args.attrs[8].f, eps = args.attrs[9].f;
  return [=, steps = args.attrs[5].i, scale = pieces.first.scale(args.attrs[10].i)](Stream on) {
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
  if (!is_dealt_here(args)) {
    const auto bytes = static_cast<std::size_t>(args.operands[2].elements() * size_of(dtype_of<C>()));
    return [to = data<C>(args, 2), bytes](Stream on) {
      check(cudaMemsetAsync(to, 0, bytes, on), "cudaMemsetAsync");
    };
  }
  std::vector<Work> matrices;
  for (const MatrixPieces& pieces : alike_pieces(args.operands[0], args.attrs)) {
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
  if (args.attrs[11].i != 0) return bind_orthogonalize_of<bf16, float>(args, libraries, stream);
  return args.operands[0].dtype == DType::f64 ? bind_orthogonalize_of<double, double>(args, libraries, stream)
                                              : bind_orthogonalize_of<float, float>(args, libraries, stream);
}

Kernel select_orthogonalize(const OpShape& s) {
  const DType type = s.operand[0].dtype;
  const bool known = type == DType::f32 || (type == DType::f64 && s.attrs[11].i == 0);
  return known && s.operand[2].dtype == type ? runs_when_bound : nullptr;
}

template <class T, class C>
std::int64_t workspace_of(const OpShape& s) {
  std::int64_t most = 0;
  for (const MatrixPieces& pieces : alike_pieces(s.operand[0], s.attrs))
    most = std::max(most, Room<T, C>(nullptr, pieces.first, Room<T, C>::together(pieces)).bytes());
  return most;
}

std::int64_t orthogonalize_workspace(const OpShape& s, std::int32_t) {
  if (s.attrs[11].i != 0) return workspace_of<bf16, float>(s);
  return s.operand[0].dtype == DType::f64 ? workspace_of<double, double>(s) : workspace_of<float, float>(s);
}

// ---------------------------------------------------------------- adafactor

FactoredShape factored_shape(const KernelArgs& args) {
  const Tensor& x = args.operands[0];
  const int first = static_cast<int>(args.attrs[0].i), last = x.rank - static_cast<int>(args.attrs[1].i);
  FactoredShape shape{1, 1, 1};
  for (int d = 0; d < x.rank; ++d)
    (d < first ? shape.batch : d < last ? shape.rows : shape.columns) *= x.dim[d];
  return shape;
}

constexpr auto bind_squares = []<class T>(const KernelArgs& args, Libraries&, Stream) -> Work {
  using C = Compute<T>;
  return [shape = factored_shape(args), gradient = data<const T>(args, 0), clip = data<const double>(args, 1),
          rows = data<C>(args, 2), columns = data<C>(args, 3), total = data<C>(args, 4)](Stream on) {
    factored_squares<T, C>(shape, gradient, clip, rows, columns, total, on);
  };
};

constexpr auto bind_direction = []<class T>(const KernelArgs& args, Libraries&, Stream) -> Work {
  using C = Compute<T>;
  return [shape = factored_shape(args), gradient = data<const T>(args, 0), clip = data<const double>(args, 1),
          rows = data<const C>(args, 2), columns = data<const C>(args, 3), total = data<const C>(args, 4),
          direction = data<C>(args, 5), squares = data<double>(args, 6), eps = args.attrs[2].f,
          n = args.operands[0].elements(), workspace = args.workspace](Stream on) {
    factored_direction<T, C>(shape, gradient, clip, rows, columns, total, eps, direction, on);
    check(cudaMemsetAsync(squares, 0, sizeof(double), on), "cudaMemsetAsync");
    const Values<C> values[] = {{direction, n}};
    sum_squares<C>(values, squares, workspace, on);
  };
};

constexpr auto bind_square_sum = []<class T>(const KernelArgs& args, Libraries&, Stream) -> Work {
  return [x = data<const T>(args, 0), n = args.operands[0].elements(), sum = data<double>(args, 1),
          workspace = args.workspace](Stream on) {
    check(cudaMemsetAsync(sum, 0, sizeof(double), on), "cudaMemsetAsync");
    const Values<T> values[] = {{x, n}};
    sum_squares<T>(values, sum, workspace, on);
  };
};

std::int64_t squares_workspace(const OpShape&, std::int32_t) { return sum_squares_workspace(); }

template <class C>
void mean(const KernelArgs& args, const KernelContext& context) {
  mean_update<C>(data<C>(args, 0), data<const C>(args, 1), data<const double>(args, 2),
                 data<const double>(args, 3), args.attrs[0].f, args.attrs[1].f, args.operands[0].elements(),
                 stream_of(context));
}

template <class C>
void scale(const KernelArgs& args, const KernelContext& context) {
  scale_by<C>(data<const C>(args, 0), data<const double>(args, 1), data<C>(args, 2),
              args.operands[0].elements(), stream_of(context));
}

void factor(const KernelArgs& args, const KernelContext& context) {
  const AdafactorNumbers numbers{data<const double>(args, 0), data<const double>(args, 1),
                                 data<const double>(args, 2), data<const double>(args, 3),
                                 data<double>(args, 4)};
  adafactor_factor(numbers, args.attrs[0].f, args.attrs[1].f, args.attrs[2].f, args.attrs[3].f,
                   stream_of(context));
}

Kernel select_squares(const OpShape& s) {
  if (!all_double(s, 1, 2) || !computed_type(s, s.operand[0].dtype, {2, 3, 4})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_direction(const OpShape& s) {
  if (!all_double(s, 1, 2) || !all_double(s, 6, 7)) return nullptr;
  if (!computed_type(s, s.operand[0].dtype, {2, 3, 4, 5})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_square_sum(const OpShape& s) {
  if (!all_double(s, 1, 2)) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return runs_when_bound; });
}

Kernel select_mean(const OpShape& s) {
  if (!all_double(s, 2, 4) || !same_type(s, {0, 1})) return nullptr;
  return s.operand[0].dtype == DType::f64   ? mean<double>
         : s.operand[0].dtype == DType::f32 ? mean<float>
                                            : nullptr;
}

Kernel select_scale(const OpShape& s) {
  if (!all_double(s, 1, 2) || !same_type(s, {0, 2})) return nullptr;
  return s.operand[0].dtype == DType::f64   ? scale<double>
         : s.operand[0].dtype == DType::f32 ? scale<float>
                                            : nullptr;
}

Kernel select_factor(const OpShape& s) { return all_double(s, 0, 5) ? factor : nullptr; }

// ---------------------------------------------------------------- pack, unpack

void copy_bytes(void* to, const void* from, std::int64_t bytes, const KernelContext& context) {
  if (bytes > 0)
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                          stream_of(context)),
          "cudaMemcpyAsync");
}

void blank(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  check(cudaMemsetAsync(x.data, 0, static_cast<std::size_t>(x.elements() * size_of(x.dtype)),
                        stream_of(context)),
        "cudaMemsetAsync");
}

void unpack(const KernelArgs& args, const KernelContext& context) {
  const Tensor &packed = args.operands[0], &tensor = args.operands[1];
  const std::int64_t size = size_of(tensor.dtype);
  copy_bytes(tensor.data, packed.as<const char>() + args.attrs[0].i * size, tensor.elements() * size,
             context);
}

void pack(const KernelArgs& args, const KernelContext& context) {
  const Tensor &tensor = args.operands[0], &packed = args.operands[1];
  const PackedRange range = packed_range(tensor, packed, args.attrs[0].i);
  const std::int64_t size = size_of(tensor.dtype);
  copy_bytes(packed.as<char>() + range.to * size, tensor.as<const char>() + range.from * size,
             range.count * size, context);
}

Kernel select_blank(const OpShape&) { return blank; }
Kernel select_unpack(const OpShape& s) { return same_type(s, {0, 1}) ? unpack : nullptr; }
Kernel select_pack(const OpShape& s) { return same_type(s, {0, 1}) ? pack : nullptr; }

}  // namespace

std::vector<DeviceOp> whole_update_ops(const OpChoices&) {
  return {{{"orthogonalize", select_orthogonalize, orthogonalize_workspace}, bind_orthogonalize},
          {{"factored_squares", select_squares}, bind_typed<bind_squares>},
          {{"factored_direction", select_direction, squares_workspace}, bind_typed<bind_direction>},
          {{"square_sum", select_square_sum, squares_workspace}, bind_typed<bind_square_sum>},
          {{"mean_update", select_mean}},
          {{"adafactor_factor", select_factor}},
          {{"scale_by", select_scale}},
          {{"blank", select_blank}},
          {{"unpack", select_unpack}},
          {{"pack", select_pack}}};
}

}  // namespace prun::cuda
