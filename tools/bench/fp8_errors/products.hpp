// Says how far products in fp8 are from the products of the same factors.
#pragma once

#include <vector>

#include "prun/device.hpp"
#include "tools/bench/fp8_errors/capture.hpp"

namespace prun::fp8_errors {

// Holds errors of a product, all in the Frobenius norm, over some rows of its result. What rounding is
// expected to do is relative to the root of the sum of squares of all terms, a_ik b_kj, if each is off by
// itself; the product is smaller than that where terms cancel, and larger where they agree.
struct ProductErrors {
  std::string layer, weight;
  Which which = Which::forward;
  double terms = 0;            // of the device's result, of its terms
  double product = 0;          // of the device's result, of the product
  double compute = 0;          // the same of the op without fp8
  double emulated = 0;         // of the device's result beside the product of rounded factors, of the product
  double left = 0, right = 0;  // of the factors as they are rounded
  // This is of the larger of the two: where terms agree, so may what they are off by. The others are what it
  // would be with one scale for a whole tensor, and with gradients in e5m2.
  double larger = 0, one_scale = 0, e5m2 = 0;
};

// Has the device multiply, and compares `rows` rows of each result.
std::vector<ProductErrors> errors_of(const std::vector<Captured>& products, DeviceInterface& device,
                                     std::int64_t rows);

}  // namespace prun::fp8_errors
