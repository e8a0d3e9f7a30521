// Implements experts and its gradients, for positions in pieces whose rows fit a workspace that does not grow
// with the batch. The rows of a piece are put in the order of their experts, and for one expert in that of
// positions; then each expert's rows are a matrix, and everything is a product. Each position adds its rows
// in the order of its choices.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/gemm.hpp"
#include "cpu/lanes.hpp"
#include "cpu/scratch.hpp"
#include "cpu/values.hpp"
#include "cpu/vector_math.hpp"
#include "prun/op.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

struct Sizes {
  std::int64_t positions, choices, experts, hidden, ffn;
  std::int64_t piece;  // counts positions at a time

  Sizes(std::int64_t n, std::int64_t k, std::int64_t e, std::int64_t h, std::int64_t f, std::int64_t bytes)
      : positions(n), choices(k), experts(e), hidden(h), ffn(f) {
    constexpr std::int64_t room = std::int64_t{64} << 20;
    const std::int64_t each = k * (4 * h + 5 * f) * bytes;
    piece = std::min(n, std::max<std::int64_t>(64, room / each));
  }
  static Sizes of(const KernelArgs& args) {
    const Tensor &x = args.operands[0], &up = args.operands[3];
    return {x.outer(1), args.operands[1].inner(1),    up.dim[0], up.dim[3],
            up.dim[2],  x.dtype == DType::f64 ? 8 : 4};
  }
  static Sizes of(const OpShape& s) {
    const OperandShape &x = s.operand[0], &index = s.operand[1], &up = s.operand[3];
    const std::int64_t choices = index.dims[index.rank - 1].extent;
    return {index.elements() / choices, choices,           up.dims[0].extent,
            up.dims[3].extent,          up.dims[2].extent, x.dtype == DType::f64 ? 8 : 4};
  }
  std::int64_t rows() const { return piece * choices; }
};

// Divides the workspace of a launch. Buffers that only gradients need exist for them alone.
template <class T>
struct Buffers {
  using C = Compute<T>;
  std::int64_t *begin, *row, *choice;  // by expert: its rows; by choice, or -1; by row
  T *x, *up, *act, *dy;                // have rows
  C *out, *dact;
  void* gemm;

  Buffers(Scratch& scratch, const Sizes& s, std::int32_t threads, bool gradients)
      : begin(scratch.take<std::int64_t>(s.experts + 1)),
        row(scratch.take<std::int64_t>(s.rows())),
        choice(scratch.take<std::int64_t>(s.rows())),
        x(scratch.take<T>(s.rows() * s.hidden)),
        up(scratch.take<T>(s.rows() * 2 * s.ffn)),
        act(scratch.take<T>(s.rows() * s.ffn)),
        dy(scratch.take<T>(gradients ? s.rows() * s.hidden : 0)),
        out(scratch.take<C>(s.rows() * s.hidden)),
        dact(scratch.take<C>(gradients ? s.rows() * s.ffn : 0)) {
    std::int64_t bytes = 0;
    const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
      bytes = std::max(bytes, gemm_workspace(threads, m, n, k, sizeof(C)));
    };
    product(s.rows(), 2 * s.ffn, s.hidden);
    product(s.rows(), s.hidden, 2 * s.ffn);
    product(s.rows(), s.ffn, s.hidden);
    if (gradients) product(2 * s.ffn, s.hidden, s.rows());
    if (gradients) product(s.hidden, s.ffn, s.rows());
    gemm = scratch.take<std::byte>(bytes);
  }
};

template <class T>
class ExpertRows {
 public:
  using C = Compute<T>;

  ExpertRows(const KernelArgs& args, const KernelContext& context, bool gradients)
      : workers_(*context.workers),
        sizes_(Sizes::of(args)),
        scratch_(args.workspace),
        at_(scratch_, sizes_, workers_.count, gradients),
        x_(args.operands[0].as<const T>()),
        index_(args.operands[1].as<const std::int32_t>()),
        weight_(args.operands[2].as<const C>()),
        up_(args.operands[3].as<const T>()),
        down_(args.operands[4].as<const T>()),
        kept_(args.operands[6].as<T>()),
        first_expert_(args.operands[3].start[0]) {}

  static std::int64_t workspace_of(const OpShape& shape, std::int32_t threads, bool gradients) {
    Scratch scratch;
    const Buffers<T> counted(scratch, Sizes::of(shape), threads, gradients);
    return scratch.bytes();
  }

  const Sizes& sizes() const { return sizes_; }

  // Calls piece() for each piece, its rows in order.
  template <class Piece>
  void each_piece(Piece piece) {
    for (first_ = 0; first_ < sizes_.positions; first_ += sizes_.piece) {
      count_ = std::min(sizes_.piece, sizes_.positions - first_);
      sort();
      gather(x_, at_.x);
      piece();
    }
  }
  bool is_first() const { return first_ == 0; }

  // Computes the activations' operands, for this op and, if one is needed, for its gradients.
  void rise() const {
    each_expert([&](std::int64_t e, std::int64_t row, std::int64_t rows) {
      gemm<T, T, T>(workers_, matrix(at_.x, row, rows, sizes_.hidden), up_of(e).transposed(),
                    matrix(at_.up, row, rows, 2 * sizes_.ffn), false, nullptr, at_.gemm);
    });
  }
  void keep() const {
    if (kept_) copy_rows(at_.up, kept_of_piece());
  }
  void rise_again() const {
    if (kept_)
      copy_rows(kept_of_piece(), at_.up);
    else
      rise();
  }

  void activate() const {
    const auto body = [](const T* __restrict gate, const T* __restrict up, T* __restrict y) {
#pragma omp simd
      for (int l = 0; l < block_lanes; ++l) {
        const C g = load(gate[l]);
        store(y[l], g * sigmoid(g).value * load(up[l]));
      }
    };
    for_rows([&](std::int64_t r) {
      const T* const gate = at_.up + r * 2 * sizes_.ffn;
      for_blocks(sizes_.ffn, body, gate, gate + sizes_.ffn, at_.act + r * sizes_.ffn);
    });
  }

  void write_results(T* y) const {
    each_expert([&](std::int64_t e, std::int64_t row, std::int64_t rows) {
      gemm<T, T, C>(workers_, matrix(at_.act, row, rows, sizes_.ffn), down_of(e).transposed(),
                    matrix(at_.out, row, rows, sizes_.hidden), false, nullptr, at_.gemm);
    });
    combine(y, [&](std::int64_t choice) { return weight_[choice]; });
  }

  // Computes, from dy and by row, the activations' gradients before their weight.
  void arrive(const T* dy) const {
    gather(dy, at_.dy);
    each_expert([&](std::int64_t e, std::int64_t row, std::int64_t rows) {
      gemm<T, T, C>(workers_, matrix(at_.dy, row, rows, sizes_.hidden), down_of(e),
                    matrix(at_.dact, row, rows, sizes_.ffn), false, nullptr, at_.gemm);
    });
  }

  // Choices of experts on other ranks have no gradient here.
  void write_weight_gradients(C* dweight) const {
    parallel_ranges(workers_, choices(), 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        const std::int64_t r = at_.row[c];
        const T* const act = at_.act + r * sizes_.ffn;
        const C* const dact = at_.dact + r * sizes_.ffn;
        dweight[first_choice() + c] =
            r < 0 ? C(0) : lane_sum<C>(sizes_.ffn, [&](std::int64_t i) { return load(act[i]) * dact[i]; });
      }
    });
  }

  // Turns the activations' operands into their own gradients, and weights the activations.
  void turn_back() const {
    for_rows([&](std::int64_t r) {
      const C w = weight_[first_choice() + at_.choice[r]];
      const auto body = [w](const C* __restrict dact, T* __restrict gate, T* __restrict up,
                            T* __restrict act) {
#pragma omp simd
        for (int l = 0; l < block_lanes; ++l) {
          const C d = dact[l] * w, g = load(gate[l]), u = load(up[l]);
          const Sigmoid<C> s = sigmoid(g);
          store(gate[l], d * u * (s.value * (C(1) + g * s.rest)));
          store(up[l], d * (g * s.value));
          store(act[l], load(act[l]) * w);
        }
      };
      T* const gate = at_.up + r * 2 * sizes_.ffn;
      const C* const dact = at_.dact + r * sizes_.ffn;
      for_blocks(sizes_.ffn, body, dact, gate, gate + sizes_.ffn, at_.act + r * sizes_.ffn);
    });
  }

  void write_input_gradients(T* dx) const {
    each_expert([&](std::int64_t e, std::int64_t row, std::int64_t rows) {
      gemm<T, T, C>(workers_, matrix(at_.up, row, rows, 2 * sizes_.ffn), up_of(e),
                    matrix(at_.out, row, rows, sizes_.hidden), false, nullptr, at_.gemm);
    });
    combine(dx, [](std::int64_t) { return C(1); });
  }

  // Experts without rows begin their sums too. Either sum may be null.
  template <class Sum>
  void add_parameter_gradients(Sum* dup, bool up_begins, Sum* ddown, bool down_begins) const {
    const std::int64_t up_size = 2 * sizes_.ffn * sizes_.hidden, down_size = sizes_.hidden * sizes_.ffn;
    for (std::int64_t e = 0; e < sizes_.experts; ++e) {
      const std::int64_t row = at_.begin[e], rows = at_.begin[e + 1] - row;
      if (dup)
        add_product(matrix(at_.up, row, rows, 2 * sizes_.ffn), matrix(at_.x, row, rows, sizes_.hidden),
                    dup + e * up_size, up_begins && is_first());
      if (ddown)
        add_product(matrix(at_.dy, row, rows, sizes_.hidden), matrix(at_.act, row, rows, sizes_.ffn),
                    ddown + e * down_size, down_begins && is_first());
    }
  }

 private:
  T* kept_of_piece() const { return kept_ + first_choice() * 2 * sizes_.ffn; }
  void copy_rows(const T* from, T* to) const {
    for_rows([&](std::int64_t r) {
      std::copy_n(from + r * 2 * sizes_.ffn, 2 * sizes_.ffn, to + r * 2 * sizes_.ffn);
    });
  }

  std::int64_t first_choice() const { return first_ * sizes_.choices; }
  std::int64_t choices() const { return count_ * sizes_.choices; }
  std::int64_t rows() const { return at_.begin[sizes_.experts]; }

  // Returns the number that a choice's expert has on this rank, or -1 where another rank has it.
  std::int64_t own(std::int64_t choice) const {
    const std::int64_t e = index_[first_choice() + choice] - first_expert_;
    return e >= 0 && e < sizes_.experts ? e : -1;
  }

  // Sorts by counting, so that rows of one expert stay in the order of positions.
  void sort() const {
    std::fill_n(at_.begin, sizes_.experts + 1, std::int64_t{0});
    for (std::int64_t c = 0; c < choices(); ++c)
      if (const std::int64_t e = own(c); e >= 0) ++at_.begin[e + 1];
    for (std::int64_t e = 0; e < sizes_.experts; ++e) at_.begin[e + 1] += at_.begin[e];
    for (std::int64_t c = 0; c < choices(); ++c) {
      const std::int64_t e = own(c);
      at_.row[c] = e < 0 ? -1 : at_.begin[e]++;
      if (e >= 0) at_.choice[at_.row[c]] = c;
    }
    for (std::int64_t e = sizes_.experts; e > 0; --e) at_.begin[e] = at_.begin[e - 1];
    at_.begin[0] = 0;
  }

  template <class Body>
  void for_rows(const Body& body) const {
    parallel_ranges(workers_, rows(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) body(r);
    });
  }

  void gather(const T* from, T* to) const {
    for_rows([&](std::int64_t r) {
      const std::int64_t position = first_ + at_.choice[r] / sizes_.choices;
      std::copy_n(from + position * sizes_.hidden, sizes_.hidden, to + r * sizes_.hidden);
    });
  }

  // Sets to[position] = sum of factor(choice) * its row of `out`, in the order of choices.
  template <class Factor>
  void combine(T* to, const Factor& factor) const {
    parallel_ranges(workers_, count_, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) combine_one(t, to + (first_ + t) * sizes_.hidden, factor);
    });
  }

  template <class Factor>
  void combine_one(std::int64_t t, T* to, const Factor& factor) const {
    constexpr std::int64_t width = 256;
    for (std::int64_t begin = 0; begin < sizes_.hidden; begin += width) {
      const std::int64_t n = std::min(width, sizes_.hidden - begin);
      C sum[width] = {};
      for (std::int64_t c = t * sizes_.choices; c < (t + 1) * sizes_.choices; ++c) {
        if (at_.row[c] < 0) continue;
        const C by = factor(first_choice() + c);
        const C* const row = at_.out + at_.row[c] * sizes_.hidden + begin;
#pragma omp simd
        for (std::int64_t i = 0; i < n; ++i) sum[i] += by * row[i];
      }
      for (std::int64_t i = 0; i < n; ++i) store(to[begin + i], sum[i]);
    }
  }

  // Calls body(expert, its first row, rows) for the experts that have rows.
  template <class Body>
  void each_expert(const Body& body) const {
    for (std::int64_t e = 0; e < sizes_.experts; ++e)
      if (const std::int64_t row = at_.begin[e], rows = at_.begin[e + 1] - row; rows > 0) body(e, row, rows);
  }

  template <class E>
  static Matrix<E> matrix(E* data, std::int64_t row, std::int64_t rows, std::int64_t columns) {
    return row_major(data + row * columns, rows, columns);
  }
  Matrix<const T> up_of(std::int64_t e) const {
    return matrix(up_, e * 2 * sizes_.ffn, 2 * sizes_.ffn, sizes_.hidden);
  }
  Matrix<const T> down_of(std::int64_t e) const {
    return matrix(down_, e * sizes_.hidden, sizes_.hidden, sizes_.ffn);
  }

  // Computes sum += left^T * right.
  template <class Sum>
  void add_product(Matrix<T> left, Matrix<T> right, Sum* sum, bool begins) const {
    if (left.rows == 0) {
      if (begins) std::fill_n(sum, left.cols * right.cols, Sum{});
      return;
    }
    gemm<T, T, Sum>(workers_, Matrix<const T>(left).transposed(), right,
                    row_major(sum, left.cols, right.cols), !begins, nullptr, at_.gemm);
  }

  const Workers& workers_;
  Sizes sizes_;
  Scratch scratch_;
  Buffers<T> at_;
  const T* x_;
  const std::int32_t* index_;
  const C* weight_;
  const T *up_, *down_;
  T* kept_;
  std::int64_t first_expert_;
  std::int64_t first_ = 0, count_ = 0;  // the positions of the piece
};

template <class T>
void experts(const KernelArgs& args, const KernelContext& context) {
  ExpertRows<T> rows(args, context, false);
  rows.each_piece([&] {
    rows.rise();
    rows.keep();
    rows.activate();
    rows.write_results(args.operands[5].as<T>());
  });
}

template <class T>
void experts_grad(const KernelArgs& args, const KernelContext& context) {
  ExpertRows<T> rows(args, context, true);
  rows.each_piece([&] {
    rows.rise_again();
    rows.activate();
    rows.arrive(args.operands[5].as<const T>());
    rows.write_weight_gradients(args.operands[8].as<Compute<T>>());
    rows.turn_back();
    rows.write_input_gradients(args.operands[7].as<T>());
  });
}

// Operand `up` and the one behind it are the sums.
template <class T, class Sum>
void add_gradients(const ExpertRows<T>& rows, const KernelArgs& args, int up) {
  rows.add_parameter_gradients(args.operands[up].as<Sum>(), args.begins(up), args.operands[up + 1].as<Sum>(),
                               args.begins(up + 1));
}

template <class T, class Sum>
void experts_weight_grad(const KernelArgs& args, const KernelContext& context) {
  ExpertRows<T> rows(args, context, true);
  rows.each_piece([&] {
    rows.rise_again();
    rows.activate();
    rows.arrive(args.operands[5].as<const T>());
    rows.turn_back();
    add_gradients<T, Sum>(rows, args, 7);
  });
}

template <class T, class Sum>
void experts_grads(const KernelArgs& args, const KernelContext& context) {
  ExpertRows<T> rows(args, context, true);
  rows.each_piece([&] {
    rows.rise_again();
    rows.activate();
    rows.arrive(args.operands[5].as<const T>());
    rows.write_weight_gradients(args.operands[8].as<Compute<T>>());
    rows.turn_back();
    rows.write_input_gradients(args.operands[7].as<T>());
    add_gradients<T, Sum>(rows, args, 9);
  });
}

// Checks the types of operands that all these ops read; the one at `more` has the values' type as well.
bool operand_types(const OpShape& s, int more) {
  return same_type(s, {0, 3, 4, more}) && (!s.operand[6].present || same_type(s, {0, 6})) &&
         s.operand[1].dtype == DType::i32 && s.operand[2].dtype == OpShape::statistics(s.operand[0].dtype);
}

Kernel select_experts(const OpShape& s) {
  if (!operand_types(s, 5)) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return experts<T>; });
}

Kernel select_grad(const OpShape& s) {
  if (!operand_types(s, 5) || !same_type(s, {0, 7}) || !same_type(s, {2, 8})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return experts_grad<T>; });
}

// Chooses by the type of the sums at `up` and behind it, of which either may be absent.
template <class Choice>
Kernel choose_sums(const OpShape& s, int up, Choice choice) {
  const OperandShape &dup = s.operand[up], &ddown = s.operand[up + 1];
  if (dup.present && ddown.present && dup.dtype != ddown.dtype) return nullptr;
  const DType type = s.operand[0].dtype;
  const DType sum = dup.present ? dup.dtype : ddown.present ? ddown.dtype : OpShape::statistics(type);
  return choose_product_sum(type, sum, choice);
}

Kernel select_weight_grad(const OpShape& s) {
  if (!operand_types(s, 5)) return nullptr;
  return choose_sums(s, 7, []<class T, class Sum>() -> Kernel { return experts_weight_grad<T, Sum>; });
}

Kernel select_grads(const OpShape& s) {
  if (!operand_types(s, 5) || !same_type(s, {0, 7}) || !same_type(s, {2, 8})) return nullptr;
  return choose_sums(s, 9, []<class T, class Sum>() -> Kernel { return experts_grads<T, Sum>; });
}

template <bool gradients>
std::int64_t workspace(const OpShape& s, std::int32_t threads) {
  switch (s.operand[0].dtype) {
    case DType::f64: return ExpertRows<double>::workspace_of(s, threads, gradients);
    case DType::bf16: return ExpertRows<bf16>::workspace_of(s, threads, gradients);
    case DType::f16: return ExpertRows<f16>::workspace_of(s, threads, gradients);
    default: return ExpertRows<float>::workspace_of(s, threads, gradients);
  }
}

}  // namespace

std::vector<KernelDef> experts_kernels();
std::vector<KernelDef> experts_kernels() {
  return {{"experts", select_experts, workspace<false>},
          {"experts_grad", select_grad, workspace<true>},
          {"experts_weight_grad", select_weight_grad, workspace<true>, 3u << 7},
          {"experts_grads", select_grads, workspace<true>, 3u << 9}};
}

}  // namespace prun::cpu::PRUN_ISA
