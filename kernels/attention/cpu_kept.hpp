// Keeps rows of some positions among those of all, where text is made.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/isa.hpp"
#include "prun/kernel.hpp"

namespace prun::cpu::PRUN_ISA {

// Puts rows [batch, seq, ...] among rows [batch, kept, ...], from that position on.
template <class T>
void keep_rows(const Tensor& rows, const Tensor& all, std::int64_t position) {
  const std::int64_t width = rows.inner(2), count = rows.dim[1] * width;
  for (std::int64_t b = 0; b < rows.dim[0]; ++b)
    std::copy_n(rows.as<const T>() + b * count, count, all.as<T>() + (b * all.dim[1] + position) * width);
}

}  // namespace prun::cpu::PRUN_ISA
