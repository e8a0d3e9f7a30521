// A matrix in a flat range that ranks share out, as tests of peak_fp8_squares and encode_fp8_part have it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "prun/fp8_squares.hpp"
#include "tests/support/fp8_oracle.hpp"
#include "tests/support/kernel_harness.hpp"

namespace prun::test {

// The matrix begins behind other numbers, and has others behind the room for its scales. Borders of parts cut
// squares.
struct SharedOut {
  std::int64_t rows, columns, parts;
  static constexpr std::int64_t first = 384, place = 3;

  Fp8Squares squares() const { return {columns, rows}; }
  std::int64_t part() const {
    const std::int64_t all = first + squares().bytes() + 128;
    return (all + parts * 128 - 1) / (parts * 128) * 128;
  }
  std::vector<Attr> attrs() const {
    return {Attr{.i = first}, Attr{.i = rows}, Attr{.i = columns}, Attr{.i = place},
            Attr{.i = part() * parts}};
  }
  std::int64_t peaks() const { return place + squares().across() * squares().down(); }

  // Returns a rank's part of a range that has the matrix, and other numbers around it.
  Value part_of(const Value& matrix, std::int64_t rank) const {
    Value range(matrix.dtype(), {part()});
    for (std::int64_t i = 0; i < part(); ++i) {
      const std::int64_t at = rank * part() + i - first;
      const bool inside = at >= 0 && at < rows * columns;
      range.set(static_cast<std::size_t>(i), inside ? matrix[static_cast<std::size_t>(at)] : 1e30);
    }
    return range;
  }

  // Returns the bytes of the matrix's codes out of those of all parts.
  std::vector<char> codes_in(const std::vector<Value>& codes) const {
    std::vector<char> all;
    for (const Value& part : codes) all.insert(all.end(), part.bytes().begin(), part.bytes().end());
    return {all.begin() + first, all.begin() + first + squares().bytes()};
  }
};

inline constexpr SharedOut shared_out[] = {
    {256, 384, 1}, {256, 384, 3}, {400, 144, 5}, {16, 528, 2}, {272, 208, 7}};

// Puts a NaN into one square, and an infinite number into another.
inline Value numbers_to_share(DType type, const SharedOut& how) {
  Value x = uneven_numbers(type, how.rows, how.columns, 1);
  x.set(5, std::nan(""));
  x.set(x.size() - 1, -std::numeric_limits<double>::infinity());
  return x;
}

inline Value largest_of(const std::vector<Value>& peaks) {
  Value largest = peaks.front();
  for (const Value& some : peaks)
    for (std::size_t i = 0; i < some.size(); ++i) largest.set(i, std::max(largest[i], some[i]));
  return largest;
}

}  // namespace prun::test
