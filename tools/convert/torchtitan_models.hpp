// Knows the models of torchtitan, whose shapes are in its code under the names of flavors, and which ranks
// have the experts of one.
#pragma once

#include "convert/layout.hpp"

namespace prun::convert {

// Converts model.name and model.flavor.
void convert_torchtitan_model(Transfer& transfer);

// Converts which ranks have the experts; for a model without any, or an unknown one, --set states all.
void convert_torchtitan_experts(Transfer& transfer, const Axes& axes);

}  // namespace prun::convert
