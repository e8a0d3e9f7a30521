// Computes the LM head and the ops of its split form as a whole: matrix products and the pointwise part
// between them (cuda/lm_head.hpp), a chunk of rows at a time, so that only one chunk of logits ever exists.
//
// Logits and their gradients have the type of x and weight. That is not the CPU's rule, which keeps those of
// bf16 in fp32: cuBLASLt multiplies bf16 by bf16 only, and logits are by far the most bytes that a head
// moves. Each logit is a sum in fp32 that is rounded once; maximum, sum of exponentials, loss and lse are
// computed in fp32 and double from those, and dweight is summed in fp32 over all chunks. Where it lies in
// bf16 the first chunk writes it, unless it holds a sum already, all later ones add, and each rounds it:
// there are as many roundings as chunks, beside those of a microbatch each. The same holds for dbias, the sum
// of the gradients' rows.
#pragma once

#include <optional>
#include <vector>

#include "cuda/gemm.hpp"
#include "lm_head/cuda.hpp"

namespace prun::cuda {

// Limits the bytes of logits that exist at once, unless 128 rows are more. Every chunk reads the weight and
// its gradient and writes the gradient, which only many rows pay for.
inline constexpr std::int64_t most_logit_bytes = std::int64_t{2} << 30;
inline constexpr std::int64_t few_logit_bytes = std::int64_t{512} << 20;  // where memory is short

struct HeadShape {
  std::int64_t rows, width;
  std::int64_t vocab;            // the weight's: where it is split, this part's
  bool gradients = true;         // set for lm_head and lm_head_grad; lm_head_scan has none
  bool dweight = true;           // is among the gradients
  bool bias = false;             // is added to logits
  bool dbias = false;            // is among the gradients
  std::int32_t alignment = 256;  // that of all operands, in bytes
  std::int64_t most_bytes = most_logit_bytes;
};

// Returns the bytes that a launch of such a shape needs, aligned to 256.
template <class T>
std::int64_t lm_head_workspace(const HeadShape& shape);

template <class T>
struct HeadInput {
  const T* x;                   // [rows, width]
  const T* weight;              // [vocab, width]
  const std::int32_t* targets;  // [rows]
  const T* bias = nullptr;      // [vocab]; null where the shape has none
};

template <class T, class S = Compute<T>>
struct HeadGradients {
  const double* scale;  // on the device
  S* dweight;           // [vocab, width]; null where the shape has none
  bool first;           // says that dweight holds nothing yet and is not read
  T* dx;                // [rows, width]
  Sum<S> dbias = {};    // [vocab]; null where the shape has none
};

// Is one part of the vocabulary.
struct VocabPart {
  std::int64_t first;  // is where its rows begin in the whole
  std::int64_t whole;
};

// Is a product of the head, prepared, with operands to tune it on.
struct HeadProduct {
  GemmPlan* plan;
  GemmOperands operands;
};

// Holds the products of one shape, prepared.
template <class T, class S = Compute<T>>
class LogitRows {
 public:
  LogitRows(const Gemm& gemm, const HeadShape& shape);

  // Returns the products to tune: those of whole chunks, and of the last one where it is shorter. They
  // overwrite the workspace, dx and dweight.
  std::vector<HeadProduct> products(const HeadInput<T>& input, const HeadGradients<T, S>& gradients,
                                    void* workspace);

  // Adds the rows' losses to *loss, and computes gradients.
  void lm_head(const HeadInput<T>& input, const HeadGradients<T, S>& gradients, double* loss, void* workspace,
               Stream stream, const HeadRegular& by = {}) const;
  // Finds by row the largest logit, the sum of exponentials above it, and the target's logit (0 if in another
  // part).
  void lm_head_scan(const HeadInput<T>& input, const VocabPart& part, Compute<T>* largest, Compute<T>* sum,
                    Compute<T>* wanted, void* workspace, Stream stream, const HeadRegular& by = {}) const;
  // Computes gradients over the part that begins at `first`; dx is its contribution.
  void lm_head_grad(const HeadInput<T>& input, std::int64_t first, const Compute<T>* lse,
                    const HeadGradients<T, S>& gradients, void* workspace, Stream stream,
                    const HeadRegular& by = {}) const;

 private:
  // Holds the products over `rows` rows.
  struct Chunk {
    std::int64_t rows;
    GemmPlan logits;
    std::optional<GemmPlan> dx, dweight;
  };
  struct Launch;

  Chunk prepare(std::int64_t rows) const;
  // Returns the chunk whose rows begin at `first`.
  const Chunk& chunk_at(std::int64_t first) const;
  // Calls pointwise(first, logits) for each chunk in order, its logits computed.
  template <class Pointwise>
  void each_chunk(const Launch& launch, const HeadRegular& by, Pointwise pointwise) const;
  // Must be called when the chunk's logits have become gradients: writes its rows of dx and adds to dweight.
  void add_gradients(const Launch& launch, std::int64_t first) const;

  const Gemm& gemm_;
  HeadShape shape_;
  std::vector<Chunk> chunks_;  // has a whole one, and the last one where it is shorter
};

}  // namespace prun::cuda
