// Declares route and its gradient: which experts each position chooses, and with which weights.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

struct RouteShape {
  std::int64_t positions, routes, choices;
  bool sigmoid = false, normalise = true;
  double scale = 1;
  std::int64_t groups = 1, chosen_groups = 1, group_best = 2;
};

// Says whether a block's shared memory has room for `routes` scores.
bool routes_fit(std::int64_t routes, std::int64_t size_of_score);

// `bias` may be null. C is float or double.
template <class C>
void route(const C* logits, const C* bias, std::int32_t* index, C* weight, const RouteShape& shape,
           Stream stream);

template <class C>
void route_grad(const C* logits, const std::int32_t* index, const C* dweight, C* dlogits,
                const RouteShape& shape, Stream stream);

}  // namespace prun::cuda
