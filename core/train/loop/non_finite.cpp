#include "train/loop/non_finite.hpp"

#include <cmath>
#include <optional>

#include "program/step.hpp"

namespace prun {
namespace {

// Names what a layer needed more of than there was.
struct Beyond {
  std::string layer, option;
  double needed = 0, planned = 0;
};

std::optional<Beyond> most_beyond(const StepResult& result) {
  std::optional<Beyond> most;
  for (const StepTally& tally : result.tallies)
    for (std::int64_t layer = 0; tally.bounds && layer < tally.layers; ++layer) {
      const double* const numbers = tally.numbers.data() + 2 * layer;
      if (numbers[0] <= numbers[1] || (most && most->needed >= numbers[0])) continue;
      const std::size_t dot = tally.name.rfind('.');
      most = {tally.name.substr(0, dot) + "." + std::to_string(layer), tally.name.substr(dot + 1), numbers[0],
              numbers[1]};
    }
  return most;
}

// Rounds up to two digits behind the point, so that what is shown suffices.
double enough(double needed) { return std::ceil(needed * 100 * (1 - 1e-12)) / 100; }

const char* updated_text(const Program& program) {
  return updates_before_norm(program)
             ? "; parameters are partly updated, since updates do not wait for the norm where nothing "
               "is clipped, and are not saved"
             : "; nothing was updated";
}

[[noreturn]] void throw_scale_spent(const std::string& what, double scale) {
  throw_error(ErrorCode::diverged, what, "; nothing was updated, and the loss scale is 2^", std::ilogb(scale),
              " already, the least that loss_scale.least allows. Lower optimizer.lr, look at what the model "
              "computes, or take loss_scale.rule = \"megatron\", which goes on there");
}

[[noreturn]] void throw_diverged(const Program& program, const std::string& what) {
  throw_error(ErrorCode::diverged, what, updated_text(program),
              ". Lower optimizer.lr, set optimizer.clip, or run.on_nonfinite = \"skip\"");
}

[[noreturn]] void throw_beyond(const Program& program, const std::string& what) {
  throw_error(ErrorCode::diverged, what, updated_text(program),
              ". Plan for as much, or set run.on_nonfinite = \"skip\"");
}

}  // namespace

std::string beyond_text(std::int64_t step, const StepResult& result) {
  const std::optional<Beyond> most = result.kept ? std::nullopt : most_beyond(result);
  if (!most) return "";
  return detail::concat("step ", step, ": ", most->layer, " needs ", most->option, " = ",
                        enough(most->needed), ", and ", std::floor(most->planned * 100) / 100,
                        " was planned for");
}

std::string non_finite_text(std::int64_t step, const StepResult& result) {
  if (std::string beyond = beyond_text(step, result); !beyond.empty()) return beyond;
  return detail::concat("step ", step, ": ", std::isfinite(result.loss) ? "" : "the loss is not finite; ",
                        result.non_finite.empty()
                            ? "no gradient is non-finite by itself"
                            : "the gradient of '" + result.non_finite + "' is not finite");
}

std::string scale_text(double before, double next) {
  if (before == 0) return "";
  const auto power = [](double scale) { return detail::concat("2^", std::ilogb(scale)); };
  if (before == next) return "; the loss scale stays at " + power(before);
  return "; the loss scale falls from " + power(before) + " to " + power(next);
}

void throw_non_finite(const Program& program, std::int64_t step, const StepResult& result) {
  const std::string what = non_finite_text(step, result);
  if (result.scale_spent) throw_scale_spent(what, result.loss_scale);
  if (!beyond_text(step, result).empty()) throw_beyond(program, what);
  throw_diverged(program, what);
}

}  // namespace prun
