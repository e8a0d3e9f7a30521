// Compares gradients of steps, tensor by tensor and layer by layer.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/bench/fp8_errors/runs.hpp"

namespace prun::fp8_errors {

struct Likeness {
  std::string name;              // of a tensor, a layer, or a weight over all layers
  double cosine = 0, error = 0;  // to the reference, and relative to its norm
};

// Compares groups of tensors, each as one vector; a group is what has the same name.
std::vector<Likeness> compare(const AllNumbers& gradients, const AllNumbers& reference,
                              const std::function<std::string(const NamedNumbers&)>& name);

}  // namespace prun::fp8_errors
