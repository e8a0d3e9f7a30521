// Computes products and sums of whole numbers while they are read: 2*3+4.
#pragma once

#include <cstdint>
#include <string_view>

namespace prun::convert {

class WholeSum {
 public:
  // Adds a number and the sign after it; the last sign is a +. Returns false where one of them is invalid, or
  // the number divides by zero.
  bool add(std::string_view number, char behind);
  bool too_large() const { return too_large_; }
  std::int64_t value() const { return sum_; }

 private:
  std::int64_t sum_ = 0, product_ = 1;
  char last_ = '+', sign_ = '+';
  bool too_large_ = false;
};

}  // namespace prun::convert
