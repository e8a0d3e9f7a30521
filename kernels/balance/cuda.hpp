// Declares balance, its gradient, and steer: see kernels/balance/balance.cpp.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

struct BalanceShape {
  std::int64_t sequences, positions, choices, routes;
  bool sigmoid = false;
  double coefficient = 0, z = 0;
};

std::int64_t balance_workspace(const BalanceShape& shape);

// `counts` and `losses` are the layer's own rows; `logits` and `losses` are null together.
template <class C>
void balance(const C* logits, const std::int32_t* index, const std::int32_t* targets, const double* scale,
             double* counts, double* losses, const BalanceShape& shape, void* workspace, Stream stream);

template <class C>
void balance_grad(const C* logits, const std::int32_t* index, const std::int32_t* targets,
                  const double* scale, C* dlogits, const BalanceShape& shape, void* workspace, Stream stream);

template <class C>
void steer(const double* counts, const double* keep, C* bias, std::int64_t routes, double rate,
           Stream stream);

}  // namespace prun::cuda
