// Declares the updates, adamw, sgd, momentum and average_weights, the ops that decide about them, sum_squares
// and clip_factor, and count_non_finite, which looks for the reason where these were against an update. Each
// goes over all tensors of a list in one launch (a few, where there are more than some hundred). The lists
// are read when the launch is enqueued; the step's scalars lie on the device.
//
// An update is the sequence of operations in kernels/update_rule.hpp, and has the bits of kernels/cpu.
#pragma once

#include <span>

#include "cuda/launch.hpp"
#include "update_types.hpp"

namespace prun::cuda {

template <class T>
struct Values {
  const T* data;
  std::int64_t elements;
};

// Adds the squares of each tensor to *sum, in double and in the order of kernels/square_sum.hpp.
template <class T>
void sum_squares(std::span<const Values<T>> tensors, double* sum, void* workspace, Stream stream);
// Returns the bytes of workspace, whatever the tensors.
std::int64_t sum_squares_workspace();

struct ClipFactor {
  const double* sum;  // that of squares
  const double* loss;
  const double* halt;
  double* norm;
  double* clip;                   // is limit / norm where that is below 1, otherwise 1, over the scale
  double* keep;                   // 0 where norm or loss is not finite or halt is not 0, otherwise 1
  const double* scale = nullptr;  // the loss's, which the norm is without; null: none
};

// A limit of 0 means none.
void clip_factor(const ClipFactor& numbers, double limit, Stream stream);

template <class T>
struct CountedValues {
  const T* data;
  std::int64_t elements;
  double* count;
};

// Adds to *count, where *keep is 0, the elements of the tensor that are not finite. Counts are whole numbers,
// so the order in which they are added does not matter.
template <class T>
void count_non_finite(std::span<const CountedValues<T>> tensors, const double* keep, Stream stream);

// Types is UpdateTypes<...>. Where an update rounds by chance, `numbers` says which elements a tensor has.
template <class Types>
struct AdamTensor {
  typename Types::Parameter* parameter;
  // It may be null only where its type says that there is none; otherwise it is updated and the parameter is
  // its rounding.
  typename Types::Master* master;
  const typename Types::Gradient* gradient;
  typename Types::State* m;
  typename Types::State* v;
  std::int64_t elements;
  double decay;
  double lr_scale;
  TensorElements numbers = {};
};

struct AdamSettings {
  double beta1, beta2, eps;
  const double *lr, *step, *clip, *keep;  // on the device; with keep 0 nothing is written
  const double* seed = nullptr;           // may be null where nothing rounds by chance
};

template <class Types>
void adamw(std::span<const AdamTensor<Types>> tensors, const AdamSettings& settings, Stream stream);

template <class Types>
struct SgdTensor {
  typename Types::Parameter* parameter;
  typename Types::Master* master;
  const typename Types::Gradient* gradient;
  typename Types::State* buffer;  // the momentum's; it may be null where that is 0
  std::int64_t elements;
  double decay;
  double lr_scale;
  TensorElements numbers = {};
};

struct SgdSettings {
  double momentum;
  const double *lr, *clip, *keep;                 // a null clip takes gradients as they are
  const double *step = nullptr, *seed = nullptr;  // may be null where nothing rounds by chance
};

template <class Types>
void sgd(std::span<const SgdTensor<Types>> tensors, const SgdSettings& settings, Stream stream);

// Types are those of choose_momentum().
template <class Types>
struct MomentumTensor {
  const typename Types::Gradient* gradient;
  typename Types::State* state;
  typename Types::C* direction;  // is zeros where keep is 0
  std::int64_t elements;
  TensorElements numbers = {};
};

struct MomentumSettings {
  double now, later;
  bool sign;
  const double *clip, *keep;
  const double *step = nullptr, *seed = nullptr;  // may be null where nothing rounds by chance
};

template <class Types>
void momentum(std::span<const MomentumTensor<Types>> tensors, const MomentumSettings& settings,
              Stream stream);

// Types are those of choose_average().
template <class Types>
struct AveragedTensor {
  const typename Types::Parameter* parameter;
  const typename Types::Master* master;  // may be null only where its type says that there is none
  typename Types::C* average;
  std::int64_t elements;
};

template <class Types>
void average_weights(std::span<const AveragedTensor<Types>> tensors, double decay, const double* step,
                     const double* keep, Stream stream);

// ---------------------------------------------------------------- states in 8 bits (eight_bits.hpp)

// Holds elements of a tensor, in whole blocks, and where each block's scales are.
template <class Types>
struct EightBitAdamTensor {
  typename Types::Parameter* parameter;
  typename Types::Master* master;
  const typename Types::Gradient* gradient;
  std::uint8_t *m, *v;
  float *m_scale, *v_scale;
  std::int64_t elements;
  double decay;
  double lr_scale;
  TensorElements numbers = {};
};

template <class Types>
void adamw_in_8_bits(const EightBitAdamTensor<Types>& tensor, const AdamSettings& settings, Stream stream);

template <class Gradient>
struct EightBitMomentumTensor {
  const Gradient* gradient;
  std::uint8_t* state;
  float *scale, *direction;
  std::int64_t elements;
  TensorElements numbers = {};
};

template <class Gradient>
void momentum_in_8_bits(const EightBitMomentumTensor<Gradient>& tensor, const MomentumSettings& settings,
                        Stream stream);

}  // namespace prun::cuda
