// Converts the arguments of Megatron-LM part by part. An argument that no part takes is for the rules.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>

#include "convert/transfer.hpp"

namespace prun::convert::megatron {

inline constexpr const char* on = "on";  // the value of a flag that stands alone

inline bool flag(const Transfer& transfer, std::string_view key) { return transfer.is(key, on); }

// The schemas refuse numbers that are beyond any count.
inline std::int64_t whole(double number) {
  return static_cast<std::int64_t>(std::clamp(number, -9e15, 9e15));
}

// Converts what the model is: gpt or llama, its sizes, and what is different there.
void convert_model(Transfer& transfer);
// Pads the rows of the table to a multiple, which depends on the ranks along the tensor axis.
void convert_vocabulary(Transfer& transfer, std::int64_t tensor);
// Converts batch, optimizer and learning rate, and how long is trained.
void convert_training(Transfer& transfer);
void convert_precision(Transfer& transfer);

// Says what becomes of all other arguments.
std::span<const Rule> rules();

}  // namespace prun::convert::megatron
