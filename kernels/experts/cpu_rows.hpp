// Computes experts and their gradients for a piece of positions: each expert's rows are a matrix, and
// everything is a product. Each position adds its rows in the order of its choices.
#pragma once

#include <algorithm>

#include "cpu/gemm.hpp"
#include "cpu/lanes.hpp"
#include "cpu/scratch.hpp"
#include "cpu/values.hpp"
#include "cpu/vector_math.hpp"
#include "experts/cpu_pieces.hpp"
#include "prun/named_operands.hpp"

namespace prun::cpu::PRUN_ISA {

// Divides the workspace of a launch. Buffers that only gradients need exist for them alone.
template <class T>
struct ExpertBuffers {
  using C = Compute<T>;
  T *x, *up, *act, *dy;  // have rows
  C *out, *dact;
  void* gemm;

  ExpertBuffers(Scratch& scratch, const ExpertSizes& s, std::int32_t threads, bool gradients)
      : x(scratch.take<T>(s.rows() * s.hidden)),
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

// States what stands between the two products: biases in front of it, which may be null, and what bounds it
// (kernels/experts/experts.hpp); without a limit it is swiglu.
template <class T>
struct ExpertGate {
  const T* up_bias = nullptr;  // [experts, 2, ffn]
  Compute<T> limit = 0, alpha = 1;
};

template <class T>
class ExpertRows {
 public:
  using C = Compute<T>;

  // `kept` is null where nothing is kept.
  template <class Op>
  ExpertRows(const ArgsOf<Op>& op, const KernelContext& context, bool gradients, T* kept,
             const ExpertGate<T>& gate = {})
      : workers_(*context.workers),
        sizes_(ExpertSizes::of(op)),
        scratch_(static_cast<const KernelArgs&>(op).workspace),
        piece_(sizes_, op["index"].template as<const std::int32_t>(), op["up"].start[0], scratch_),
        at_(scratch_, sizes_, workers_.count, gradients),
        x_(op["x"].template as<const T>()),
        weight_(op["weight"].template as<const C>()),
        up_(op["up"].template as<const T>()),
        down_(op["down"].template as<const T>()),
        kept_(kept),
        gate_(gate) {}

  template <class Op>
  static std::int64_t workspace_of(const ShapeOf<Op>& s, std::int32_t threads, bool gradients) {
    Scratch scratch;
    const ExpertSizes sizes = ExpertSizes::of(s);
    const ExpertPiece piece(sizes, nullptr, 0, scratch);
    const ExpertBuffers<T> buffers(scratch, sizes, threads, gradients);
    return scratch.bytes();
  }

  // Calls piece() for each piece, its rows in order.
  template <class Body>
  void each_piece(const Body& body) {
    piece_.each([&] {
      gather_rows(workers_, piece_, sizes_.hidden, x_, at_.x);
      body();
    });
  }

  // Computes the activations' operands, for this op and, if one is needed, for its gradients.
  void rise() const {
    each_busy_expert([&](std::int64_t e, std::int64_t row, std::int64_t rows) {
      gemm<T, T, T>(workers_, matrix(at_.x, row, rows, sizes_.hidden), up_of(e).transposed(),
                    matrix(at_.up, row, rows, 2 * sizes_.ffn), false,
                    gate_.up_bias ? gate_.up_bias + e * 2 * sizes_.ffn : nullptr, at_.gemm);
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
    if (gate_.limit > 0) return activate_bounded();
    const auto body = [](const T* __restrict gate, const T* __restrict up, T* __restrict y) {
#pragma omp simd
      for (int l = 0; l < block_lanes; ++l) {
        const C g = load(gate[l]);
        store(y[l], g * sigmoid(g).value * load(up[l]));
      }
    };
    for_rows(workers_, piece_, [&](std::int64_t r) {
      const T* const gate = at_.up + r * 2 * sizes_.ffn;
      for_blocks(sizes_.ffn, body, gate, gate + sizes_.ffn, at_.act + r * sizes_.ffn);
    });
  }

  void write_results(T* y) const {
    each_busy_expert([&](std::int64_t e, std::int64_t row, std::int64_t rows) {
      gemm<T, T, C>(workers_, matrix(at_.act, row, rows, sizes_.ffn), down_of(e).transposed(),
                    matrix(at_.out, row, rows, sizes_.hidden), false, nullptr, at_.gemm);
    });
    combine_rows(workers_, piece_, sizes_, at_.out, y, [&](std::int64_t choice) { return weight_[choice]; });
  }

  // Computes, from dy and by row, the activations' gradients before their weight.
  void arrive(const T* dy) const {
    gather_rows(workers_, piece_, sizes_.hidden, dy, at_.dy);
    each_busy_expert([&](std::int64_t e, std::int64_t row, std::int64_t rows) {
      gemm<T, T, C>(workers_, matrix(at_.dy, row, rows, sizes_.hidden), down_of(e),
                    matrix(at_.dact, row, rows, sizes_.ffn), false, nullptr, at_.gemm);
    });
  }

  // Choices of experts on other ranks have no gradient here.
  void write_weight_gradients(C* dweight) const {
    parallel_ranges(workers_, piece_.choices(), 16, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t c = begin; c < end; ++c) {
        const std::int64_t r = piece_.row_of(c);
        const T* const act = at_.act + r * sizes_.ffn;
        const C* const dact = at_.dact + r * sizes_.ffn;
        dweight[piece_.first_choice() + c] =
            r < 0 ? C(0) : lane_sum<C>(sizes_.ffn, [&](std::int64_t i) { return load(act[i]) * dact[i]; });
      }
    });
  }

  // Turns the activations' operands into their own gradients, and weights the activations.
  void turn_back() const {
    if (gate_.limit > 0) return turn_bounded_back();
    for_rows(workers_, piece_, [&](std::int64_t r) {
      const C w = weight_[piece_.choice_of(r)];
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
    each_busy_expert([&](std::int64_t e, std::int64_t row, std::int64_t rows) {
      gemm<T, T, C>(workers_, matrix(at_.up, row, rows, 2 * sizes_.ffn), up_of(e),
                    matrix(at_.out, row, rows, sizes_.hidden), false, nullptr, at_.gemm);
    });
    combine_rows(workers_, piece_, sizes_, at_.out, dx, [](std::int64_t) { return C(1); });
  }

  // Experts without rows begin their sums too. Either sum may be null.
  template <class Sum>
  void add_parameter_gradients(Sum* dup, bool up_begins, Sum* ddown, bool down_begins) const {
    const std::int64_t up_size = 2 * sizes_.ffn * sizes_.hidden, down_size = sizes_.hidden * sizes_.ffn;
    piece_.each_expert([&](std::int64_t e, std::int64_t row, std::int64_t rows) {
      if (dup)
        add_product(matrix(at_.up, row, rows, 2 * sizes_.ffn), matrix(at_.x, row, rows, sizes_.hidden),
                    dup + e * up_size, up_begins && piece_.is_first());
      if (ddown)
        add_product(matrix(at_.dy, row, rows, sizes_.hidden), matrix(at_.act, row, rows, sizes_.ffn),
                    ddown + e * down_size, down_begins && piece_.is_first());
    });
  }

  // Experts without rows begin their sums too; the sums may be null.
  template <class Sum>
  void add_bias_gradients(Sum* dbias, bool begins) const {
    const std::int64_t width = 2 * sizes_.ffn;
    if (!dbias) return;
    piece_.each_expert([&](std::int64_t e, std::int64_t row, std::int64_t rows) {
      Sum* const to = dbias + e * width;
      parallel_ranges(workers_, width, 64, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t j = begin; j < end; ++j) {
          Compute<Sum> sum = begins && piece_.is_first() ? Compute<Sum>{} : load(to[j]);
          for (std::int64_t r = row; r < row + rows; ++r)
            sum += static_cast<Compute<Sum>>(load(at_.up[r * width + j]));
          store(to[j], sum);
        }
      });
    });
  }

 private:
  void activate_bounded() const {
    const C limit = gate_.limit, alpha = gate_.alpha;
    const auto body = [=](const T* __restrict gate, const T* __restrict up, T* __restrict y) {
#pragma omp simd
      for (int l = 0; l < block_lanes; ++l) {
        const C g = std::min<C>(load(gate[l]), limit), u = std::clamp<C>(load(up[l]), -limit, limit);
        store(y[l], (u + C(1)) * (g * sigmoid(alpha * g).value));
      }
    };
    for_rows(workers_, piece_, [&](std::int64_t r) {
      const T* const gate = at_.up + r * 2 * sizes_.ffn;
      for_blocks(sizes_.ffn, body, gate, gate + sizes_.ffn, at_.act + r * sizes_.ffn);
    });
  }
  void turn_bounded_back() const {
    const C limit = gate_.limit, alpha = gate_.alpha;
    for_rows(workers_, piece_, [&](std::int64_t r) {
      const C w = weight_[piece_.choice_of(r)];
      const auto body = [=](const C* __restrict dact, T* __restrict gate, T* __restrict up,
                            T* __restrict act) {
#pragma omp simd
        for (int l = 0; l < block_lanes; ++l) {
          const C d = dact[l] * w, of_gate = load(gate[l]), of_up = load(up[l]);
          const C g = std::min<C>(of_gate, limit), u = std::clamp<C>(of_up, -limit, limit);
          const Sigmoid<C> s = sigmoid(alpha * g);
          const C dgate = d * (u + C(1)) * (s.value * (C(1) + alpha * g * s.rest));
          store(gate[l], of_gate > limit ? C(0) : dgate);
          store(up[l], u != of_up ? C(0) : d * (g * s.value));
          store(act[l], load(act[l]) * w);
        }
      };
      T* const gate = at_.up + r * 2 * sizes_.ffn;
      const C* const dact = at_.dact + r * sizes_.ffn;
      for_blocks(sizes_.ffn, body, dact, gate, gate + sizes_.ffn, at_.act + r * sizes_.ffn);
    });
  }
  T* kept_of_piece() const { return kept_ + piece_.first_choice() * 2 * sizes_.ffn; }
  void copy_rows(const T* from, T* to) const {
    for_rows(workers_, piece_, [&](std::int64_t r) {
      std::copy_n(from + r * 2 * sizes_.ffn, 2 * sizes_.ffn, to + r * 2 * sizes_.ffn);
    });
  }

  template <class Body>
  void each_busy_expert(const Body& body) const {
    piece_.each_expert([&](std::int64_t e, std::int64_t row, std::int64_t rows) {
      if (rows > 0) body(e, row, rows);
    });
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
  ExpertSizes sizes_;
  Scratch scratch_;
  ExpertPiece piece_;
  ExpertBuffers<T> at_;
  const T* x_;
  const C* weight_;
  const T *up_, *down_;
  T* kept_;
  ExpertGate<T> gate_;
};

template <bool gradients, class Op>
std::int64_t experts_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<Op> s(shape);
  switch (s["x"].dtype) {
    case DType::f64: return ExpertRows<double>::workspace_of(s, threads, gradients);
    case DType::bf16: return ExpertRows<bf16>::workspace_of(s, threads, gradients);
    case DType::f16: return ExpertRows<f16>::workspace_of(s, threads, gradients);
    default: return ExpertRows<float>::workspace_of(s, threads, gradients);
  }
}

}  // namespace prun::cpu::PRUN_ISA
