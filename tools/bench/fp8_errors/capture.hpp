// Takes the factors of products in fp8 out of a step, as the ops that multiply them get them.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "plugin_check/kernel_trial.hpp"
#include "tools/bench/fp8_errors/runs.hpp"

namespace prun::fp8_errors {

enum class Which : std::uint8_t { forward, input_gradient, weight_gradient };

struct Captured {
  std::string layer, weight;
  std::int64_t number = 0;  // of the layer
  Which which = Which::forward;
  std::string op;
  // Multiplies in fp8 in whichever layer; sums begin with zeros. The op's definition is left out, since it
  // ends with the program.
  KernelCall call;
};

// Takes a step of `sequences` sequences on the CPU, whose kernels end one by one. Returns products in the
// order of Which and of layers.
std::vector<Captured> capture(const Recipe& recipe, PluginHost& plugins, const AllNumbers& weights,
                              std::int64_t sequences);

}  // namespace prun::fp8_errors
