// Knows the models of torchtitan, whose shapes are in its code under the names of flavors, and which ranks
// have the experts of one.
#pragma once

#include "convert/layout.hpp"

namespace prun::convert {

// Converts model.name and model.flavor.
void convert_torchtitan_model(Transfer& transfer);

// Which ranks have the experts; of a model without any, or one that nobody knows, all is said by --set.
void convert_torchtitan_experts(Transfer& transfer, const Axes& axes);

}  // namespace prun::convert
