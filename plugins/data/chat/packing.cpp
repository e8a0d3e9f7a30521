#include "packing.hpp"

#include <algorithm>

namespace prun::chat {
namespace {

constexpr std::size_t most_open = 64;

// Holds a sample that may take more conversations.
struct Open {
  std::size_t sample;
  std::int64_t left;
};

}  // namespace

std::vector<std::vector<std::uint32_t>> pack(std::span<const std::int64_t> lengths, std::int64_t room) {
  std::vector<std::vector<std::uint32_t>> samples;
  std::vector<Open> open;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int64_t behind_others = lengths[i] + 1;
    auto best = open.end();
    for (auto one = open.begin(); one != open.end(); ++one)
      if (one->left >= behind_others && (best == open.end() || one->left < best->left)) best = one;
    if (best != open.end()) {
      samples[best->sample].push_back(static_cast<std::uint32_t>(i));
      best->left -= behind_others;
      continue;
    }
    if (open.size() == most_open)
      open.erase(std::min_element(open.begin(), open.end(),
                                  [](const Open& a, const Open& b) { return a.left < b.left; }));
    open.push_back({samples.size(), room - lengths[i]});
    samples.push_back({static_cast<std::uint32_t>(i)});
  }
  return samples;
}

}  // namespace prun::chat
