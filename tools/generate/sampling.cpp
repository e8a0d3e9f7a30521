#include "generate/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/random.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// Returns the smallest number of first weights that have that share of all together; it is at least one.
std::size_t nucleus(std::span<const double> weights, double top_p) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || sum < top_p * all)) sum += weights[count++];
  return count;
}

}  // namespace

std::int32_t choose_token(std::span<const double> logits, const Sampling& sampling, std::int64_t position) {
  const auto likeliest = std::max_element(logits.begin(), logits.end(), [](double a, double b) {
    return std::isnan(b) ? false : std::isnan(a) || a < b;
  });
  if (likeliest == logits.end() || !std::isfinite(*likeliest))
    throw_error(ErrorCode::diverged, "the logits of position ", position,
                " are not finite; the parameters cannot be used");
  if (sampling.temperature == 0) return static_cast<std::int32_t>(likeliest - logits.begin());
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  std::vector<double> weights;
  for (const std::int32_t token : order)
    weights.push_back(
        std::exp((logits[static_cast<std::size_t>(token)] - *likeliest) / sampling.temperature));
  const std::size_t count = nucleus(weights, sampling.top_p);
  const RandomStream stream(static_cast<std::uint64_t>(sampling.seed), stream_id("generate"));
  double left = stream.uniform_double(static_cast<std::uint64_t>(position)) *
                std::accumulate(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(count), 0.0);
  std::size_t chosen = 0;
  while (chosen + 1 < count && left >= weights[chosen]) left -= weights[chosen++];
  return order[chosen];
}

}  // namespace prun
