// Prints what was compared as tables in Markdown, as soon as it is known, and writes it as JSON.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/fp8_errors/gradients.hpp"
#include "tools/bench/fp8_errors/products.hpp"

namespace prun::fp8_errors {

// Holds a step in a format, beside one in fp32.
struct Compared {
  std::string format;
  double loss = 0;
  std::vector<Likeness> layers, weights, tensors;
};

// The first of the steps is the one in fp32.
struct Findings {
  std::vector<double> losses;
  std::vector<Compared> steps;
  std::vector<ProductErrors> products;
};

void print_losses(const std::vector<double>& losses);
void print(const std::vector<Compared>& steps);
void print(const std::vector<ProductErrors>& products);
std::string to_json(const Findings& findings);

}  // namespace prun::fp8_errors
