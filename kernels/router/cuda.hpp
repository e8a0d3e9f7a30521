// Declares router and its gradients: products of values with scores that have more precision.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

struct RouterShape {
  std::int64_t rows, routes, hidden;
};

// Returns the bytes of workspace for sums with elements of `size` bytes: products are cut along the dimension
// that is summed, and the parts added in order.
std::int64_t router_workspace(const RouterShape& shape, std::int64_t size);
std::int64_t router_weight_grad_workspace(const RouterShape& shape, std::int64_t size);

template <class T>
void router(const T* x, const T* weight, Compute<T>* logits, const RouterShape& shape, Compute<T>* workspace,
            Stream stream);

template <class T>
void router_input_grad(const Compute<T>* dlogits, const T* weight, T* dx, const RouterShape& shape,
                       Stream stream);

template <class T, class S>
void router_weight_grad(const T* x, const Compute<T>* dlogits, const Sum<S>& dweight,
                        const RouterShape& shape, Compute<T>* workspace, Stream stream);

}  // namespace prun::cuda
