// Draws one token out of the logits of all.
#pragma once

#include <cstdint>
#include <span>

namespace prun {

struct Sampling {
  double temperature = 0;  // 0: always the likeliest token
  double top_p = 1;        // draws only from the likeliest that have this share together
  std::int64_t seed = 1;
};

// Chooses the token for position `position` of a text, which seed, position and logits alone decide. Of equal
// logits the first counts as likelier. Throws diverged where no logit is finite.
std::int32_t choose_token(std::span<const double> logits, const Sampling& sampling, std::int64_t position);

}  // namespace prun
