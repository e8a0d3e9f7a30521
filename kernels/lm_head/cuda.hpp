// Declares the pointwise part of the LM head, over a chunk of rows of logits: cross-entropy with the gradient
// in place, and the steps of its form over a split vocabulary. The logits have any of the value types; the
// matrix products around them are not done here. A target below 0 does not count; one beyond the vocabulary
// makes the loss NaN.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

template <class T>
struct Logits {
  T* data;
  std::int64_t rows;
  std::int64_t vocab;
  std::int64_t stride;          // leads from row to row, in elements; a row's padding is left alone
  const std::int32_t* targets;  // [rows]
};

// States what kernels/lm_head/lm_head.hpp adds to the loss: nothing where both are 0. `words`
// counts the whole vocabulary. Logits are bounded by `softcap`, unless it is 0: gradients are those of what
// they were before.
struct HeadRegular {
  double z = 0, smoothing = 0;
  std::int64_t words = 1;
  double softcap = 0;

  bool any() const { return z != 0 || smoothing != 0 || softcap != 0; }
};

// Bounds logits in their place: each becomes softcap * tanh(logit / softcap).
template <class T>
void bound_logits(const Logits<T>& logits, double softcap, Stream stream);

// Turns logits into the loss's gradient, scaled by *scale, and adds the rows' losses to *loss. The workspace
// has 8 bytes a row.
template <class T>
void cross_entropy(const Logits<T>& logits, const double* scale, double* loss, void* workspace, Stream stream,
                   const HeadRegular& by = {});

// Finds for each row the largest logit, the sum of exponentials above it and the target's logit (0 where the
// target lies in another part), in a part of the vocabulary that begins at `first` of `whole`.
template <class T>
void lm_head_scan(const Logits<T>& logits, std::int64_t first, std::int64_t whole, Compute<T>* largest,
                  Compute<T>* sum, Compute<T>* wanted, Stream stream, const HeadRegular& by = {});

// Computes scaled = sum * exp(largest - gmax).
template <class C>
void lm_head_rescale(const C* largest, const C* gmax, const C* sum, C* scaled, std::int64_t rows,
                     Stream stream);

// Computes lse = gmax + log(sum); *loss += lse - wanted over the rows whose target counts. The workspace has
// 8 bytes a row.
template <class C>
void lm_head_loss(const C* gmax, const C* sum, const C* wanted, const std::int32_t* targets, double* loss,
                  C* lse, std::int64_t rows, void* workspace, Stream stream, const HeadRegular& by = {});

// Adds the same to sums[group, 0], and 1 to sums[group, 1], for the rows of each of `count` groups.
template <class C>
void lm_head_groups(const C* gmax, const C* sum, const C* wanted, const std::int32_t* targets,
                    const std::int32_t* groups, double* sums, std::int64_t count, std::int64_t rows,
                    Stream stream, const HeadRegular& by = {});

// Turns logits of a part of the vocabulary into gradients.
template <class T>
void lm_head_grad(const Logits<T>& logits, std::int64_t first, const Compute<T>* lse, const double* scale,
                  Stream stream, const HeadRegular& by = {});

// Computes the logits of one position for each row of `seq` positions, the last one whose target is not
// negative; they are zeros where there is none. A bias, which may be null, is added to each.
struct HeadLogitsShape {
  std::int64_t batch, seq, width, vocab;
  double softcap = 0;
};
template <class T>
void lm_head_logits(const T* x, const T* weight, const std::int32_t* targets, Compute<T>* logits,
                    const HeadLogitsShape& shape, Stream stream, const T* bias = nullptr);

}  // namespace prun::cuda
