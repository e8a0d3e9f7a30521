#include "expert_capacity.hpp"

#include <algorithm>
#include <cmath>

namespace prun {

void ExpertCapacity::check(const ExpertRouter& router) const {
  if (!limited() && first_come_)
    throw_error(ErrorCode::bad_input,
                "cannot apply model.capacity_by without a capacity; set model.capacity");
  if (limited() && !first_come_ && router.weighs_alike())
    throw_error(
        ErrorCode::bad_input,
        "cannot apply model.capacity by weight: with model.choices = 1 and router_normalise = true all "
        "weights are equal; set model.capacity_by = \"position\", or router_normalise = false");
}

// A product that is a whole number but for its rounding must not be rounded up.
Id ExpertCapacity::build(const SegmentPart& s, std::int64_t seq, std::int64_t choices,
                         const ChosenExperts& chosen) const {
  const double mean = static_cast<double>(seq * choices) / static_cast<double>(experts_),
               most = std::min(std::ceil(capacity_ * mean * (1 - 1e-12)), static_cast<double>(seq));
  const Id kept = s.op("cap_choices", {chosen.index, first_come_ ? none : chosen.weight},
                       {{"most", most}, {"experts", static_cast<double>(experts_)}});
  s.ops("count_dropped", {kept, s.targets(), s.tally("dropped", {{"all", 1}})}, 0);
  return kept;
}

}  // namespace prun
