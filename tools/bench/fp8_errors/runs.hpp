// Trains a recipe, and takes a step of the same weights and samples in each format that is compared.
#pragma once

#include <string>
#include <vector>

#include "train/assemble/plugin_host.hpp"
#include "train/loop/trainer.hpp"

namespace prun::fp8_errors {

// Holds numbers of a parameter, or of its gradient. `layer` is "block.3", or the segment where that does not
// repeat; `weight` is its name in there.
struct NamedNumbers {
  std::string layer, weight;
  std::vector<float> numbers;
};
using AllNumbers = std::vector<NamedNumbers>;

struct Trained {
  AllNumbers weights;
  std::vector<double> losses;
};

struct Step {
  double loss = 0;
  AllNumbers gradients;
};

// Throws where the recipe has more than one rank, or no product in fp8.
void check_recipe(const Recipe& recipe, PluginHost& plugins);

// Returns the layer of an instance as tables name it.
std::string layer_name(const Assembly& assembly, std::int32_t instance);

// Trains so many steps as the recipe says, without fp8.
Trained train(const Recipe& recipe, PluginHost& plugins, std::int64_t steps);

// Puts the weights in the place of those that the run begins with, rounded to its type. The updates of a step
// begin from others, so that what it trains is of no use.
void put_weights(Trainer& trainer, const AllNumbers& weights);

// Returns the recipe for steps that are compared: samples that training has not begun with, gradients in
// fp32, and what changes no bit of a step left out. `compute` is "" for the recipe's own.
Recipe compared(const Recipe& recipe, PluginHost& plugins, const std::string& compute, bool fp8);

// Takes a step; `later` steps on other samples come before it, all from the same weights.
Step step_of(const Recipe& recipe, PluginHost& plugins, const AllNumbers& weights, int later = 0);

}  // namespace prun::fp8_errors
