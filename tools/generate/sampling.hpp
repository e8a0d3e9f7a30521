// Draws one token out of the logits of all.
#pragma once

#include <cstdint>
#include <span>

namespace prun {

struct Sampling {
  double temperature = 0;  // 0: always the likeliest
  double top_p = 1;        // only the likeliest that have this share together
  std::int64_t seed = 1;
};

// The one for position `position` of a text: seed and position say which one it is, and nothing else does. Of
// equal logits the first counts as likelier. Throws diverged where no logit is finite.
std::int32_t choose_token(std::span<const double> logits, const Sampling& sampling, std::int64_t position);

}  // namespace prun
