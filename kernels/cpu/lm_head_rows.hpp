// Computes the logits of an LM head, a chunk of rows at a time, so that only one chunk of logits ever exists;
// lm_head and the ops of its split form share this.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cpu/dispatch.hpp"
#include "cpu/gemm.hpp"
#include "cpu/scratch.hpp"
#include "cpu/softmax.hpp"
#include "cpu/values.hpp"
#include "prun/op.hpp"

namespace prun::cpu::PRUN_ISA {

// Cuts all rows into chunks of equal size, the last one perhaps smaller.
struct RowChunks {
  std::int64_t rows, vocab, width, chunk;

  // Takes as many rows as 64 MiB of logits hold, but at least 64: every chunk reads the weight and updates
  // its gradient once, which only many rows pay for.
  static RowChunks cut(std::int64_t rows, std::int64_t vocab, std::int64_t width, std::int64_t compute_size) {
    const std::int64_t most = std::max<std::int64_t>(64, (std::int64_t{64} << 20) / (vocab * compute_size));
    const std::int64_t count = std::max<std::int64_t>(1, (rows + most - 1) / most);
    return {rows, vocab, width, std::max<std::int64_t>(1, (rows + count - 1) / count)};
  }
  std::int64_t last() const { return rows - (rows - 1) / chunk * chunk; }
};

// Divides the workspace of one launch.
template <class C>
struct LogitBuffers {
  std::int64_t stride;  // that of the logits' rows
  C* logits;
  double* losses;  // those of the chunk's rows
  void* gemm;

  // `gradients` says that dx and dweight are computed too.
  LogitBuffers(Scratch& scratch, const RowChunks& chunks, std::int32_t threads, bool gradients)
      : stride(padded<C>(chunks.vocab)),
        logits(scratch.take<C>(chunks.chunk * stride)),
        losses(scratch.take<double>(chunks.chunk)) {
    std::int64_t bytes = 0;
    const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
      bytes = std::max(bytes, gemm_workspace(threads, m, n, k, sizeof(C)));
    };
    for (const std::int64_t rows : {chunks.chunk, chunks.last()}) {
      product(rows, chunks.vocab, chunks.width);
      if (!gradients) continue;
      product(rows, chunks.width, chunks.vocab);
      product(chunks.vocab, chunks.width, rows);
    }
    gemm = scratch.take<std::byte>(bytes);
  }
};

// Returns the workspace of an op whose first operands are x [batch, seq, width] and a weight [vocab, width].
template <bool gradients>
std::int64_t logit_workspace(const OpShape& shape, std::int32_t threads) {
  const auto bytes = [&]<class C>(C) {
    const Dim *x = shape.operand[0].dims, *weight = shape.operand[1].dims;
    const auto chunks =
        RowChunks::cut(x[0].extent * x[1].extent, weight[0].extent, weight[1].extent, sizeof(C));
    Scratch scratch;
    const LogitBuffers<C> counted(scratch, chunks, threads, gradients);
    return scratch.bytes();
  };
  return shape.operand[0].dtype == DType::f64 ? bytes(double{}) : bytes(float{});
}

// Holds a sum that the gradients of weight or bias are added to; it is null where none is needed. `begins`
// says that the first chunk writes it.
template <class Sum>
struct HeadSums {
  Sum* dweight;
  bool begins_dweight;
  Sum* dbias;
  bool begins_dbias;

  HeadSums(const KernelArgs& args, int dweight_at, int dbias_at)
      : dweight(args.operands[dweight_at].as<Sum>()),
        begins_dweight(args.begins(dweight_at)),
        dbias(args.operands[dbias_at].as<Sum>()),
        begins_dbias(args.begins(dbias_at)) {}
};

// Computes one launch of such an op.
template <class T, bool gradients>
class LogitRows {
 public:
  using C = Compute<T>;

  // `bias` may be absent.
  LogitRows(const Tensor& x, const Tensor& weight, const Tensor& bias, const Workers& workers,
            void* workspace)
      : workers_(workers),
        chunks_(RowChunks::cut(x.outer(1), weight.dim[0], weight.dim[1], sizeof(C))),
        scratch_(workspace),
        buffers_(scratch_, chunks_, workers.count, gradients),
        x_(x.as<const T>()),
        weight_(row_major(weight.as<const T>(), chunks_.vocab, chunks_.width)),
        bias_(bias.as<const T>()) {}

  std::int64_t vocab() const { return chunks_.vocab; }

  // Calls chunk(first, rows) for each chunk in order, its logits computed.
  template <class Chunk>
  void each_chunk(Chunk chunk) const {
    for (std::int64_t first = 0; first < chunks_.rows; first += chunks_.chunk) {
      const std::int64_t rows = std::min(chunks_.chunk, chunks_.rows - first);
      gemm<T, T, C>(workers_, part(x_, first, rows), weight_.transposed(), logits(rows), false, bias_,
                    buffers_.gemm);
      chunk(first, rows);
    }
  }

  // Returns row r of the chunk.
  C* row(std::int64_t r) const { return buffers_.logits + r * buffers_.stride; }
  double& row_loss(std::int64_t r) const { return buffers_.losses[r]; }

  // Must be called when the chunk's logits have become gradients: writes its rows of dx and adds to the sums,
  // either of which may be null.
  template <class Sum>
  void add_gradients(std::int64_t first, std::int64_t rows, T* dx,
                     const HeadSums<Sum>& sums) const requires gradients {
    gemm<C, T, T>(workers_, logits(rows), weight_, part(dx, first, rows), false, nullptr, buffers_.gemm);
    if (sums.dbias) add_rows(rows, sums.dbias, sums.begins_dbias && first == 0);
    if (!sums.dweight) return;
    gemm<C, T, Sum>(workers_, logits(rows).transposed(), part(x_, first, rows),
                    row_major(sums.dweight, chunks_.vocab, chunks_.width),
                    !(sums.begins_dweight && first == 0), nullptr, buffers_.gemm);
  }

 private:
  // Returns the sum of the rows' losses, in their order.
  template <class Sum>
  void add_rows(std::int64_t rows, Sum* to, bool begins) const {
    parallel_ranges(workers_, vocab(), 256, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t j = begin; j < end; ++j) {
        Compute<Sum> sum = begins ? Compute<Sum>{0} : load(to[j]);
        for (std::int64_t r = 0; r < rows; ++r) sum += static_cast<Compute<Sum>>(row(r)[j]);
        store(to[j], sum);
      }
    });
  }
  Matrix<C> logits(std::int64_t rows) const {
    return row_major(buffers_.logits, rows, chunks_.vocab, buffers_.stride);
  }
  template <class E>
  Matrix<E> part(E* data, std::int64_t first, std::int64_t rows) const {
    return row_major(data + first * chunks_.width, rows, chunks_.width);
  }

  const Workers& workers_;
  RowChunks chunks_;
  Scratch scratch_;
  LogitBuffers<C> buffers_;
  const T* x_;
  Matrix<const T> weight_;
  const T* bias_;
};

// Turns exponentials into gradients: times `factor`, and minus `scale` at the target, if it is in this row.
template <class C>
void scale_row(C* row, std::int64_t vocab, double factor, std::int64_t target, double scale) {
  const C by = static_cast<C>(factor);
#pragma omp simd
  for (std::int64_t j = 0; j < vocab; ++j) row[j] *= by;
  if (target >= 0 && target < vocab) row[target] -= static_cast<C>(scale);
}

// Turns a row of logits into its gradient and returns the row's loss. A target beyond the vocabulary makes
// the loss NaN, so that the step stops as diverged instead of reading past the row.
template <class C>
double cross_entropy(C* row, std::int64_t vocab, std::int32_t target, double scale) {
  if (target < 0 || target >= vocab) {
    std::fill_n(row, vocab, C{0});
    return target < 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
  }
  const double wanted = static_cast<double>(row[target]);
  const C largest = row_max(row, vocab);
  exp_row(row, vocab, largest);
  const double sum = row_sum(row, vocab);
  scale_row(row, vocab, scale / sum, target, scale);
  return static_cast<double>(largest) + std::log(sum) - wanted;
}

// Returns the target's logit, or 0 where it is not in this part, whose logits `row` has; it begins at `start`
// of `whole`. A target beyond the whole vocabulary makes the loss NaN, so that the step stops as diverged.
template <class C>
C target_logit(const C* row, std::int64_t vocab, std::int64_t start, std::int32_t target,
               std::int64_t whole) {
  if (target >= whole) return std::numeric_limits<C>::quiet_NaN();
  const bool here = target >= 0 && target >= start && target - start < vocab;
  return here ? row[target - start] : C{0};
}

// Says whether a kernel takes the types of an op's first operands {x, weight, targets}, and that of a bias,
// which may be absent, at this place.
inline bool head_types(const OpShape& s, int bias) {
  return same_type(s, {0, 1}) && (!s.operand[bias].present || same_type(s, {0, bias})) &&
         s.operand[2].dtype == DType::i32;
}
// An op with gradients has its operands behind dweight at these places.
inline constexpr int dweight_at = 5, dx_at = 6, bias_at = 7, dbias_at = 8;
inline constexpr std::uint32_t head_sums = 1u << dweight_at | 1u << dbias_at;

// Says the same of an op with gradients, whose scale lies at this place.
inline bool head_gradient_types(const OpShape& s, int scale) {
  return head_types(s, bias_at) && same_type(s, {0, dx_at}) && s.operand[scale].dtype == DType::f64;
}
// Chooses by the types of x and of the gradients that are sums, of which either may be absent.
template <class Choice>
Kernel choose_head(const OpShape& s, Choice choice) {
  const DType type = s.operand[0].dtype;
  const OperandShape &dweight = s.operand[dweight_at], &dbias = s.operand[dbias_at];
  if (dweight.present && dbias.present && dweight.dtype != dbias.dtype) return nullptr;
  const DType sums = dweight.present ? dweight.dtype
                     : dbias.present ? dbias.dtype
                                     : OpShape::statistics(type);
  return choose_product_sum(type, sums, choice);
}

}  // namespace prun::cpu::PRUN_ISA
