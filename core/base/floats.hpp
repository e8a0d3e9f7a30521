// Converts numbers of other types to floats.
#pragma once

#include <span>

#include "prun/types.hpp"

namespace prun {

// Stores fp64, fp32, fp16, bf16, rounded as updates round a master copy, or the lower halves that make those
// whole (u16).
void store_floats(DType type, std::span<const float> numbers, std::byte* to);

// Stores fp64, fp32, fp16 and bf16 rounded to nearest even, as other programs convert weights. An update's
// bf16 rounds ties up instead, so that its lower half tells them apart (prun/split_master.hpp).
void store_nearest(DType type, std::span<const float> numbers, std::byte* to);

// Loads fp32, fp16 and bf16, which floats hold exactly, and fp64, rounded.
void load_floats(DType type, std::span<const std::byte> from, std::span<float> numbers);

}  // namespace prun
