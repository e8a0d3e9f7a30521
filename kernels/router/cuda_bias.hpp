// Declares the bias of a router's scores, which are wider than it.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

// Adds a bias [routes] to each of the rows of scores.
template <class T>
void add_router_bias(const T* bias, Compute<T>* scores, std::int64_t rows, std::int64_t routes,
                     Stream stream);

}  // namespace prun::cuda
