// Decides which conversations share a sample.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace prun::chat {

// Returns, for conversations of these lengths, each of at most `room`, the conversations of each sample,
// which take their lengths and one place between two. Early conversations stay early: each goes to the sample
// with the least room that it fits into, of the last few that were begun, or begins one. The result follows
// from lengths and room alone, and so is the same on every rank and in every run.
std::vector<std::vector<std::uint32_t>> pack(std::span<const std::int64_t> lengths, std::int64_t room);

}  // namespace prun::chat
