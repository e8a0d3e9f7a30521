#include "train/loop/fp8_counting.hpp"

#include <algorithm>

#include "base/format.hpp"

namespace prun {
namespace {

constexpr std::string_view flushed_end = ".flushed.share";
constexpr int bias = 127;  // of an exponent in fp32

double share_of(double part, double all) { return all > 0 ? part / all : 0; }

}  // namespace

Fp8Counting::Fp8Counting(const Program& program, const Recipe& recipe)
    : staged_(staged_fp8_counts(program)),
      factors_(staged_.on == none ? std::vector<CountedFactor>() : counted_factors(program)),
      every_(std::max<std::int64_t>(1, recipe.integer("precision.statistics_every"))) {}

std::vector<StepTally> Fp8Counting::tallies(const double* counts, const double* peaks) const {
  std::vector<StepTally> tallies;
  for (const CountedFactor& factor : factors_) {
    const auto add = [&](std::string_view what, auto of) {
      StepTally tally{factor.name + std::string(what), factor.layers, {}};
      for (std::int64_t row = factor.place; row < factor.place + factor.layers; ++row)
        tally.numbers.push_back(of(counts + 3 * row, peaks + 3 * row));
      tallies.push_back(std::move(tally));
    };
    add(flushed_end, [](const double* count, const double*) { return share_of(count[1], count[0]); });
    add(".subnormal.share", [](const double* count, const double*) { return share_of(count[2], count[0]); });
    add(".amax.largest", [](const double*, const double* peak) { return peak[0]; });
    add(".exponent.largest", [](const double*, const double* peak) { return peak[1] - bias; });
    add(".exponent.least", [](const double*, const double* peak) { return 255 - peak[2] - bias; });
  }
  return tallies;
}

std::string FlushedWarning::text(std::int64_t step, const std::vector<StepTally>& tallies) {
  const StepTally* worst = nullptr;
  std::int64_t most_at = 0, beyond = 0;
  double most = bound_;
  for (const StepTally& tally : tallies) {
    if (!tally.name.ends_with(flushed_end)) continue;
    const auto largest = std::max_element(tally.numbers.begin(), tally.numbers.end());
    beyond += *largest > bound_;
    if (*largest <= most) continue;
    worst = &tally;
    most = *largest;
    most_at = largest - tally.numbers.begin();
  }
  if (!worst || said_) return "";
  said_ = true;
  const std::string name = worst->name.substr(0, worst->name.size() - flushed_end.size());
  return detail::concat(
      "step ", step, ": of the numbers of '", name, "' in layer ", most_at, " that are not zero, ",
      format("%.2g %%", 100 * most), " became zero in fp8, more than precision.underflow_warning = ", bound_,
      " allows", beyond > 1 ? detail::concat(", as did those of other factors (", beyond - 1, ")") : "",
      "; first_in_compute and last_in_compute keep such layers in compute, and a larger bound is silent");
}

}  // namespace prun
