// How ranks are laid out, said in the recipe's words: mesh, and the strategies that go with it.
#pragma once

#include "convert/transfer.hpp"

namespace prun::convert {

// The ranks along each axis, and where that was said.
struct Axes {
  std::int64_t data = 1, pipeline = 1, tensor = 1;
  std::string data_origin, pipeline_origin, tensor_origin;
};

// Ranks that are left for the batch, or nothing where their number is not known, which is then asked for.
// `all`: as the source says it, if it does. Throws bad_input where they do not come out.
std::optional<std::int64_t> data_ranks(Transfer& transfer, std::optional<std::int64_t> all,
                                       std::int64_t others);

// [mesh], and the strategies data, tensor and pipeline for axes of more than one rank.
void write_axes(Transfer& transfer, const Axes& axes);

// A strategy without options.
void add_strategy(Transfer& transfer, std::string_view name, std::string_view origin);

// What `stage` of ZeRO means where `axes` have ranks to share anything out to.
void write_zero(Transfer& transfer, const Axes& axes, std::int64_t stage, std::string_view origin);

}  // namespace prun::convert
