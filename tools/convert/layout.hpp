// Writes how ranks are laid out in the recipe's words: mesh, and the strategies that go with it.
#pragma once

#include "convert/transfer.hpp"

namespace prun::convert {

// Holds the ranks along each axis, and where they were stated.
struct Axes {
  std::int64_t data = 1, pipeline = 1, tensor = 1;
  std::int64_t sequence = 1;  // counts ranks that share one sequence
  std::string data_origin, pipeline_origin, tensor_origin, sequence_origin;
};

// Throws bad_input where the product is larger than any count that means something.
std::int64_t product(std::initializer_list<std::int64_t> factors);

// Sets along how many ranks sequences are split, as the first of the keys that says more than one.
void read_sequence(Transfer& transfer, std::initializer_list<const char*> keys, Axes& axes);

// Returns the ranks that are left for the batch, or nothing where their number is not known, which is then
// asked for. `all` is as the source states it, if it does. Throws bad_input where they do not divide.
std::optional<std::int64_t> data_ranks(Transfer& transfer, std::optional<std::int64_t> all, const Axes& axes);
// Returns "--ranks / (tensor x pipeline)".
std::string data_origin(std::string_view ranks, const Axes& axes);

// Writes [mesh], and the strategies data, context, tensor and pipeline for axes of more than one rank.
void write_axes(Transfer& transfer, const Axes& axes);

// Adds a strategy without options.
void add_strategy(Transfer& transfer, std::string_view name, std::string_view origin);

// Writes strategy experts over so many ranks, or nothing for one, from a foreign key for them and one for how
// many of them split an expert, both of which the result then accounts for. Experts are over tp, whole, where
// `with_tensor` says so; else strategy tensor splits them as it splits MLPs. Refuses `key` where no axes have
// as many ranks.
void carry_experts(Transfer& transfer, const Axes& axes, std::int64_t ranks, bool with_tensor,
                   const std::string& key, const std::string& split_key);

// Writes what `stage` of ZeRO means where `axes` have ranks to share anything out to, those of a sequence
// among them.
void write_zero(Transfer& transfer, const Axes& axes, std::int64_t stage, std::string_view origin);

}  // namespace prun::convert
