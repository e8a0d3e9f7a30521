// router and its gradients: products of values with scores that have more precision.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

struct RouterShape {
  std::int64_t rows, routes, hidden;
};

template <class T>
void router(const T* x, const T* weight, Compute<T>* logits, const RouterShape& shape, Stream stream);

template <class T>
void router_input_grad(const Compute<T>* dlogits, const T* weight, T* dx, const RouterShape& shape,
                       Stream stream);

template <class T, class S>
void router_weight_grad(const T* x, const Compute<T>* dlogits, const Sum<S>& dweight,
                        const RouterShape& shape, Stream stream);

}  // namespace prun::cuda
