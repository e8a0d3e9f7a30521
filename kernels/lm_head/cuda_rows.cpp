#include "lm_head/cuda_rows.hpp"

#include <algorithm>

#include "bias/cuda.hpp"
#include "lm_head/cuda.hpp"

namespace prun::cuda {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

// Returns the distance from row to row of the logits, in elements: whole cache lines.
std::int64_t logit_stride(const HeadShape& s) { return round_up(s.vocab, 64); }

// Returns the rows of all chunks but the last, which may have fewer: a multiple of 128, which suits the tiles
// of products, and makes each chunk's rows begin as aligned as the first one's.
template <class T>
std::int64_t chunk_rows(const HeadShape& s) {
  constexpr std::int64_t step = 128;
  const std::int64_t row_bytes = logit_stride(s) * static_cast<std::int64_t>(sizeof(T));
  const std::int64_t most = std::max(step, s.most_bytes / row_bytes / step * step);
  const std::int64_t count = (s.rows + most - 1) / most;
  return std::min(s.rows, round_up((s.rows + count - 1) / count, step));
}

// Says where the parts of the workspace begin.
template <class T>
struct Offsets {
  std::int64_t losses, sums, gemm, end;  // `sums` are those of the columns of a chunk

  explicit Offsets(const HeadShape& s) {
    const std::int64_t rows = chunk_rows<T>(s);
    losses = round_up(rows * logit_stride(s) * static_cast<std::int64_t>(sizeof(T)), 256);
    sums = losses + round_up(rows * static_cast<std::int64_t>(sizeof(double)), 256);
    gemm = sums + (s.dbias ? round_up(bias_grad_workspace<T>(rows, s.vocab), 256) : 0);
    end = gemm + gemm_workspace;
  }
};

}  // namespace

template <class T>
std::int64_t lm_head_workspace(const HeadShape& shape) {
  return Offsets<T>(shape).end;
}

// Holds one launch: its operands, and the parts of its workspace. `first` is a chunk's first row.
template <class T, class S>
struct LogitRows<T, S>::Launch {
  const HeadInput<T>& in;
  const HeadGradients<T, S>& out;
  std::int64_t width, stride;
  Stream stream;
  T* logits;
  double* losses;
  void *sums, *gemm;

  Launch(const HeadShape& shape, const HeadInput<T>& input, const HeadGradients<T, S>& gradients,
         void* workspace, Stream on)
      : in(input), out(gradients), width(shape.width), stride(logit_stride(shape)), stream(on) {
    const Offsets<T> offsets(shape);
    char* begin = static_cast<char*>(workspace);
    logits = reinterpret_cast<T*>(begin);
    losses = reinterpret_cast<double*>(begin + offsets.losses);
    sums = begin + offsets.sums;
    gemm = begin + offsets.gemm;
  }
  GemmOperands logit_operands(std::int64_t first) const {
    return {in.x + first * width, in.weight, nullptr, in.bias, logits, gemm};
  }
  GemmOperands dx_operands(std::int64_t first) const {
    return {logits, in.weight, nullptr, nullptr, out.dx + first * width, gemm};
  }
  GemmOperands dweight_operands(std::int64_t first) const {
    const bool writes = out.first && first == 0;
    return {logits, in.x + first * width, writes ? nullptr : out.dweight, nullptr, out.dweight, gemm};
  }
};

template <class T, class S>
LogitRows<T, S>::LogitRows(const Gemm& gemm, const HeadShape& shape) : gemm_(gemm), shape_(shape) {
  const std::int64_t rows = chunk_rows<T>(shape), last = shape.rows - (shape.rows - 1) / rows * rows;
  chunks_.push_back(prepare(rows));
  if (last != rows) chunks_.push_back(prepare(last));
}

template <class T, class S>
typename LogitRows<T, S>::Chunk LogitRows<T, S>::prepare(std::int64_t rows) const {
  constexpr DType type = dtype_of<T>();
  const HeadShape& s = shape_;
  const std::int64_t stride = logit_stride(s);
  Chunk chunk = {rows,
                 gemm_.prepare({.m = rows,
                                .n = s.vocab,
                                .k = s.width,
                                .transpose_b = true,
                                .input = type,
                                .output = type,
                                .epilogue = s.bias ? Epilogue::bias : Epilogue::none,
                                .d_stride = stride,
                                .alignment = s.alignment}),
                 {},
                 {}};
  if (!s.gradients) return chunk;
  chunk.dx = gemm_.prepare({.m = rows,
                            .n = s.width,
                            .k = s.vocab,
                            .input = type,
                            .output = type,
                            .a_stride = stride,
                            .alignment = s.alignment});
  if (!s.dweight) return chunk;
  chunk.dweight = gemm_.prepare({.m = s.vocab,
                                 .n = s.width,
                                 .k = rows,
                                 .transpose_a = true,
                                 .input = type,
                                 .output = dtype_of<S>(),
                                 .a_stride = stride,
                                 .alignment = s.alignment});
  return chunk;
}

template <class T, class S>
const typename LogitRows<T, S>::Chunk& LogitRows<T, S>::chunk_at(std::int64_t first) const {
  return shape_.rows - first < chunks_[0].rows ? chunks_[1] : chunks_[0];
}

template <class T, class S>
template <class Pointwise>
void LogitRows<T, S>::each_chunk(const Launch& launch, const HeadRegular& by, Pointwise pointwise) const {
  for (std::int64_t first = 0; first < shape_.rows; first += chunks_[0].rows) {
    const Chunk& chunk = chunk_at(first);
    gemm_.run(chunk.logits, launch.logit_operands(first), launch.stream);
    const Logits<T> logits{launch.logits, chunk.rows, shape_.vocab, launch.stride, launch.in.targets + first};
    bound_logits(logits, by.softcap, launch.stream);
    pointwise(first, logits);
  }
}

template <class T, class S>
void LogitRows<T, S>::add_gradients(const Launch& launch, std::int64_t first) const {
  const Chunk& chunk = chunk_at(first);
  gemm_.run(*chunk.dx, launch.dx_operands(first), launch.stream);
  if (shape_.dbias)
    strided_bias_grad(launch.logits, launch.stride,
                      Sum<S>(launch.out.dbias.data, launch.out.dbias.begins && first == 0), chunk.rows,
                      shape_.vocab, launch.sums, launch.stream);
  if (chunk.dweight) gemm_.run(*chunk.dweight, launch.dweight_operands(first), launch.stream);
}

template <class T, class S>
std::vector<HeadProduct> LogitRows<T, S>::products(const HeadInput<T>& input,
                                                   const HeadGradients<T, S>& gradients, void* workspace) {
  const Launch launch(shape_, input, gradients, workspace, nullptr);
  std::vector<HeadProduct> all;
  for (Chunk& chunk : chunks_) {
    const std::int64_t first = &chunk == &chunks_[0] ? 0 : shape_.rows - chunk.rows;
    all.push_back({&chunk.logits, launch.logit_operands(first)});
    if (chunk.dx) all.push_back({&*chunk.dx, launch.dx_operands(first)});
    if (chunk.dweight) all.push_back({&*chunk.dweight, launch.dweight_operands(first)});
  }
  return all;
}

template <class T, class S>
void LogitRows<T, S>::lm_head(const HeadInput<T>& input, const HeadGradients<T, S>& gradients, double* loss,
                              void* workspace, Stream stream, const HeadRegular& by) const {
  const Launch launch(shape_, input, gradients, workspace, stream);
  each_chunk(launch, by, [&](std::int64_t first, const Logits<T>& logits) {
    cross_entropy(logits, gradients.scale, loss, launch.losses, stream, by);
    add_gradients(launch, first);
  });
}

template <class T, class S>
void LogitRows<T, S>::lm_head_scan(const HeadInput<T>& input, const VocabPart& part, Compute<T>* largest,
                                   Compute<T>* sum, Compute<T>* wanted, void* workspace, Stream stream,
                                   const HeadRegular& by) const {
  const HeadGradients<T, S> none = {};
  each_chunk(Launch(shape_, input, none, workspace, stream), by,
             [&](std::int64_t first, const Logits<T>& logits) {
               cuda::lm_head_scan(logits, part.first, part.whole, largest + first, sum + first,
                                  wanted + first, stream, by);
             });
}

template <class T, class S>
void LogitRows<T, S>::lm_head_grad(const HeadInput<T>& input, std::int64_t part_first, const Compute<T>* lse,
                                   const HeadGradients<T, S>& gradients, void* workspace, Stream stream,
                                   const HeadRegular& by) const {
  const Launch launch(shape_, input, gradients, workspace, stream);
  each_chunk(launch, by, [&](std::int64_t first, const Logits<T>& logits) {
    cuda::lm_head_grad(logits, part_first, lse + first, gradients.scale, stream, by);
    add_gradients(launch, first);
  });
}

#define PRUN_LOGIT_ROWS(T)                                      \
  template std::int64_t lm_head_workspace<T>(const HeadShape&); \
  template class LogitRows<T>
PRUN_LOGIT_ROWS(double);
PRUN_LOGIT_ROWS(float);
PRUN_LOGIT_ROWS(bf16);
PRUN_LOGIT_ROWS(f16);
template class LogitRows<bf16, bf16>;

}  // namespace prun::cuda
