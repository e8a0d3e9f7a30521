// Declares expert_biases and its gradients (kernels/experts/experts.hpp): biases behind experts,
// weighted and added up by position.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// `experts` are those that this rank has, from the number `first_expert` on.
struct ExpertBiasesShape {
  std::int64_t positions, choices, experts, first_expert, hidden;
};

template <class T>
void expert_biases(const std::int32_t* index, const Compute<T>* weight, const T* bias, T* y,
                   const ExpertBiasesShape& shape, Stream stream);

// Choices of experts on other ranks have no gradient here.
template <class T>
void expert_biases_grad(const std::int32_t* index, const T* bias, const T* dy, Compute<T>* dweight,
                        const ExpertBiasesShape& shape, Stream stream);

// Every sum adds its choices in their order.
template <class T, class S>
void expert_biases_weight_grad(const std::int32_t* index, const Compute<T>* weight, const T* dy, Sum<S> dbias,
                               const ExpertBiasesShape& shape, Stream stream);

}  // namespace prun::cuda
