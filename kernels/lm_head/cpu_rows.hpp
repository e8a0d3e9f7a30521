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
#include "prun/named_operands.hpp"

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
  C* slopes;       // those of bounded logits, of which gradients are multiplied
  double* losses;  // those of the chunk's rows
  void* gemm;

  // `gradients` says that dx and dweight are computed too.
  LogitBuffers(Scratch& scratch, const RowChunks& chunks, std::int32_t threads, bool gradients, bool bounded)
      : stride(padded<C>(chunks.vocab)),
        logits(scratch.take<C>(chunks.chunk * stride)),
        slopes(scratch.take<C>(gradients && bounded ? chunks.chunk * stride : 0)),
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

// Returns the workspace of an op with x [batch, seq, width], a weight [vocab, width] and a softcap.
template <bool gradients, class Op>
std::int64_t logit_workspace(const OpShape& shape, std::int32_t threads) {
  const ShapeOf<Op> s(shape);
  const auto bytes = [&]<class C>(C) {
    const Dim *x = s["x"].dims, *weight = s["weight"].dims;
    const auto chunks =
        RowChunks::cut(x[0].extent * x[1].extent, weight[0].extent, weight[1].extent, sizeof(C));
    Scratch scratch;
    const LogitBuffers<C> counted(scratch, chunks, threads, gradients, s.real("softcap") > 0);
    return scratch.bytes();
  };
  return s["x"].dtype == DType::f64 ? bytes(double{}) : bytes(float{});
}

// Holds a sum that the gradients of weight or bias are added to; it is null where none is needed. `begins`
// says that the first chunk writes it.
template <class Sum>
struct HeadSums {
  Sum* dweight;
  bool begins_dweight;
  Sum* dbias;
  bool begins_dbias;

  template <class Op>
  explicit HeadSums(const ArgsOf<Op>& op)
      : dweight(op["dweight"].template as<Sum>()),
        begins_dweight(op.begins("dweight")),
        dbias(op["dbias"].template as<Sum>()),
        begins_dbias(op.begins("dbias")) {}
};

// Computes one launch of such an op.
template <class T, bool gradients>
class LogitRows {
 public:
  using C = Compute<T>;

  // `bias` may be absent.
  LogitRows(const Tensor& x, const Tensor& weight, const Tensor& bias, double softcap, const Workers& workers,
            void* workspace)
      : workers_(workers),
        chunks_(RowChunks::cut(x.outer(1), weight.dim[0], weight.dim[1], sizeof(C))),
        scratch_(workspace),
        softcap_(static_cast<C>(softcap)),
        buffers_(scratch_, chunks_, workers.count, gradients, softcap_ > 0),
        x_(x.as<const T>()),
        weight_(row_major(weight.as<const T>(), chunks_.vocab, chunks_.width)),
        bias_(bias.as<const T>()) {}

  template <class Op>
  LogitRows(const ArgsOf<Op>& op, const Workers& workers)
      : LogitRows(op["x"], op["weight"], op["bias"], op.real("softcap"), workers,
                  static_cast<const KernelArgs&>(op).workspace) {}

  std::int64_t vocab() const { return chunks_.vocab; }

  // Calls chunk(first, rows) for each chunk in order, its logits computed.
  template <class Chunk>
  void each_chunk(Chunk chunk) const {
    for (std::int64_t first = 0; first < chunks_.rows; first += chunks_.chunk) {
      const std::int64_t rows = std::min(chunks_.chunk, chunks_.rows - first);
      gemm<T, T, C>(workers_, part(x_, first, rows), weight_.transposed(), logits(rows), false, bias_,
                    buffers_.gemm);
      if (softcap_ > 0)
        parallel(workers_, rows, [&](std::int64_t r) { cap_row(row(r), vocab(), softcap_, slopes(r)); });
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
    if (softcap_ > 0)
      parallel(workers_, rows, [&](std::int64_t r) { multiply_row(row(r), vocab(), slopes(r)); });
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
  C* slopes(std::int64_t r) const { return gradients ? buffers_.slopes + r * buffers_.stride : nullptr; }
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
  C softcap_;  // bounds logits; 0: they stay as they are
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

// Says whether a kernel takes the types of x, weight and targets, and that of a bias, which may be absent.
template <class Op>
bool head_types(const ShapeOf<Op>& s) {
  return same_type(s, {"x", "weight", "bias"}) && s["targets"].dtype == DType::i32;
}

template <class Op>
constexpr std::uint32_t head_sums = bits_of<Op>("dweight", "dbias");

// Says the same of an op with gradients.
template <class Op>
bool head_gradient_types(const ShapeOf<Op>& s) {
  return head_types(s) && same_type(s, {"x", "dx"}) && s["scale"].dtype == DType::f64;
}

// Says whether a kernel takes the types of an op that scans logits.
template <class Op>
bool scan_types(const ShapeOf<Op>& s) {
  return head_types(s) && same_type(s, {"max", "sum", "hit"}) &&
         s["max"].dtype == OpShape::statistics(s["x"].dtype);
}

// Says the same of an op that makes a loss of what scans found.
template <class Op>
bool loss_types(const ShapeOf<Op>& s) {
  return same_type(s, {"gmax", "scaled", "hit", "lse"}) && s["targets"].dtype == DType::i32 &&
         s["loss"].dtype == DType::f64;
}

// Makes a loss of what scans found: loss_of(lse, hit) of each row whose target counts. They are computed by
// all threads and added by one, in the order of the rows.
template <class C, class Op, class LossOf>
void add_head_losses(const ArgsOf<Op>& op, const KernelContext& context, const LossOf& loss_of) {
  const std::int64_t rows = op["targets"].elements();
  const auto* targets = op["targets"].template as<const std::int32_t>();
  const C *gmax = op["gmax"].template as<const C>(), *scaled = op["scaled"].template as<const C>(),
          *hit = op["hit"].template as<const C>();
  C* lses = op["lse"].template as<C>();
  Scratch scratch(static_cast<const KernelArgs&>(op).workspace);
  double* losses = scratch.take<double>(rows);
  parallel_ranges(*context.workers, rows, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const double lse = static_cast<double>(gmax[r]) + std::log(static_cast<double>(scaled[r]));
      lses[r] = static_cast<C>(lse);
      losses[r] = targets[r] < 0 ? 0 : loss_of(lse, static_cast<double>(hit[r]));
    }
  });
  double& loss = *op["loss"].template as<double>();
  for (std::int64_t r = 0; r < rows; ++r) loss += losses[r];
}

// Chooses by the types of x and of the gradients that are sums, of which either may be absent.
template <class Op, class Choice>
Kernel choose_head(const ShapeOf<Op>& s, Choice choice) {
  const DType type = s["x"].dtype;
  const OperandShape &dweight = s["dweight"], &dbias = s["dbias"];
  if (dweight.present && dbias.present && dweight.dtype != dbias.dtype) return nullptr;
  const DType sums = dweight.present ? dweight.dtype
                     : dbias.present ? dbias.dtype
                                     : OpShape::statistics(type);
  return choose_product_sum(type, sums, choice);
}

// Returns the workspace of an op that makes a loss of what scans found.
template <class Op>
std::int64_t head_loss_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<Op> s(shape);
  Scratch scratch;
  scratch.take<double>(s["targets"].elements());
  return scratch.bytes();
}

}  // namespace prun::cpu::PRUN_ISA
