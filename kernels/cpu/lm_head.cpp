// lm_head: logits, cross-entropy and both gradients, a chunk of rows at a time, so that the logits of one
// chunk are all that ever exists of them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/gemm.hpp"
#include "cpu/scratch.hpp"
#include "cpu/softmax.hpp"
#include "cpu/values.hpp"
#include "prun/op.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> lm_head_kernels();

namespace {

using Index = std::int64_t;

// All rows in chunks of equal size, the last one perhaps smaller.
struct Chunks {
  Index rows, vocab, width, chunk;

  Index last() const { return rows - (rows - 1) / chunk * chunk; }
};

// As many rows as 64 MiB of logits hold, but at least 64: every chunk reads the weight and updates its
// gradient once, which only many rows pay for.
Chunks cut(Index rows, Index vocab, Index width, Index compute_size) {
  const Index most = std::max<Index>(64, (Index{64} << 20) / (vocab * compute_size));
  const Index count = std::max<Index>(1, (rows + most - 1) / most);
  return {rows, vocab, width, std::max<Index>(1, (rows + count - 1) / count)};
}

// The workspace of one launch.
template <class C>
struct Buffers {
  Index stride;  // of the logits' rows
  C* logits;
  double* losses;  // of the chunk's rows
  void* gemm;

  Buffers(Scratch& scratch, const Chunks& chunks, std::int32_t threads)
      : stride(padded<C>(chunks.vocab)),
        logits(scratch.take<C>(chunks.chunk * stride)),
        losses(scratch.take<double>(chunks.chunk)) {
    Index bytes = 0;
    for (const Index rows : {chunks.chunk, chunks.last()}) {
      bytes = std::max(bytes, gemm_workspace(threads, rows, chunks.vocab, chunks.width, sizeof(C)));
      bytes = std::max(bytes, gemm_workspace(threads, rows, chunks.width, chunks.vocab, sizeof(C)));
      bytes = std::max(bytes, gemm_workspace(threads, chunks.vocab, chunks.width, rows, sizeof(C)));
    }
    gemm = scratch.take<std::byte>(bytes);
  }
};

// Turns a row of logits into its gradient and returns the row's loss. A target beyond the vocabulary makes
// the loss NaN, so that the step stops as diverged instead of reading past the row.
template <class C>
double cross_entropy(C* row, Index vocab, std::int32_t target, double scale) {
  if (target < 0 || target >= vocab) {
    std::fill_n(row, vocab, C{0});
    return target < 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
  }
  const double wanted = static_cast<double>(row[target]);
  const C largest = row_max(row, vocab);
  exp_row(row, vocab, largest);
  const double sum = row_sum(row, vocab);
  const C factor = static_cast<C>(scale / sum);
#pragma omp simd
  for (Index j = 0; j < vocab; ++j) row[j] *= factor;
  row[target] -= static_cast<C>(scale);
  return static_cast<double>(largest) + std::log(sum) - wanted;
}

template <class T>
void lm_head(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor &x = args.operands[0], &weight = args.operands[1], &dweight = args.operands[5];
  const Workers& workers = *context.workers;
  const Chunks chunks = cut(x.outer(1), weight.dim[0], weight.dim[1], sizeof(C));
  Scratch scratch(args.workspace);
  const Buffers<C> buffers(scratch, chunks, workers.count);
  const auto w = row_major(weight.as<const T>(), chunks.vocab, chunks.width);
  const auto dw = row_major(dweight.as<C>(), chunks.vocab, chunks.width);
  const double scale = *args.operands[3].as<const double>();
  double& loss = *args.operands[4].as<double>();

  for (Index first = 0; first < chunks.rows; first += chunks.chunk) {
    const Index rows = std::min(chunks.chunk, chunks.rows - first);
    const auto in = row_major(x.as<const T>() + first * chunks.width, rows, chunks.width);
    const auto dx = row_major(args.operands[6].as<T>() + first * chunks.width, rows, chunks.width);
    const auto logits = row_major(buffers.logits, rows, chunks.vocab, buffers.stride);
    const auto* targets = args.operands[2].as<const std::int32_t>() + first;
    gemm<T, T, C>(workers, in, w.transposed(), logits, false, nullptr, buffers.gemm);
    parallel(workers, rows, [&](Index r) {
      buffers.losses[r] = cross_entropy(logits.data + r * buffers.stride, chunks.vocab, targets[r], scale);
    });
    for (Index r = 0; r < rows; ++r) loss += buffers.losses[r];
    gemm<C, T, T>(workers, logits, w, dx, false, nullptr, buffers.gemm);
    if (dweight.data) gemm<C, T, C>(workers, logits.transposed(), in, dw, true, nullptr, buffers.gemm);
  }
}

Kernel select(const OpShape& shape) {
  const OperandShape* o = shape.operand;
  const DType type = o[0].dtype;
  if (!same_type(shape, {0, 1, 6}) || o[2].dtype != DType::i32) return nullptr;
  if (o[3].dtype != DType::f64 || o[4].dtype != DType::f64) return nullptr;
  if (o[5].present && o[5].dtype != OpShape::statistics(type)) return nullptr;
  return choose_value(type, []<class T>() -> Kernel { return lm_head<T>; });
}

template <class C>
Index workspace_of(const OpShape& shape, std::int32_t threads) {
  const Dim *x = shape.operand[0].dims, *weight = shape.operand[1].dims;
  Scratch scratch;
  const Buffers<C> counted(
      scratch, cut(x[0].extent * x[1].extent, weight[0].extent, weight[1].extent, sizeof(C)), threads);
  return scratch.bytes();
}

Index workspace(const OpShape& shape, std::int32_t threads) {
  return shape.operand[0].dtype == DType::f64 ? workspace_of<double>(shape, threads)
                                              : workspace_of<float>(shape, threads);
}

}  // namespace

std::vector<KernelDef> lm_head_kernels() { return {{"lm_head", select, workspace}}; }

}  // namespace prun::cpu::PRUN_ISA
