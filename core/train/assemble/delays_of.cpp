#include "train/assemble/delays_of.hpp"

#include "base/narrow.hpp"
#include "plan/instances.hpp"
#include "train/assemble/loss_scale.hpp"

namespace prun {
namespace {

void check_told(const std::vector<std::int64_t>& told, std::size_t instances, bool in_stages, Delay delay) {
  if (delay != Delay::stages || in_stages)
    throw_error(ErrorCode::bad_input,
                "optimizer.delays is for one stage under a schedule with delay=stages; ",
                in_stages ? "stages of several ranks have the delays that follow from their order"
                          : "no strategy of the recipe asks for such a schedule",
                "; leave it out");
  if (told.size() != instances)
    throw_error(ErrorCode::bad_input, "optimizer.delays lists ", told.size(), " layers, the model has ",
                instances, ", embedding and head counted; list one number for each");
}

// Refuses what updates cannot do before other stages have measured theirs.
void check_updates_at_once(const std::string& schedule, const Recipe& recipe, const BatchArithmetic& batch) {
  const std::string why =
      detail::concat("schedule '", schedule, "' updates a stage behind each microbatch, ");
  if (recipe.number("optimizer.clip") > 0)
    throw_error(ErrorCode::unsupported, why,
                "before the norm of all gradients is known that optimizer.clip asks for; set "
                "optimizer.clip = 0, or take another schedule");
  if (skips_non_finite(recipe))
    throw_error(ErrorCode::unsupported, why,
                "before it is known whether the step is finite, so it cannot be skipped; set "
                "run.on_nonfinite = \"stop\", or take another schedule");
  if (batch.accumulate != 1)
    throw_error(ErrorCode::bad_input, why, "and a step has ", batch.accumulate,
                " of them; make batch.global ", batch.micro * batch.ranks, ", or take another schedule");
}

}  // namespace

Delays delays_of(const Program& program, const std::optional<PipelineLayout>& pipeline, Delay delay,
                 const Recipe& recipe, const BatchArithmetic& batch) {
  const std::size_t instances = chain_of(program).size();
  const std::vector<std::int64_t>& told = recipe.integers("optimizer.delays");
  if (!told.empty()) check_told(told, instances, pipeline.has_value(), delay);
  if (delay == Delay::nothing) return {};
  if (delay == Delay::one) return {std::vector<std::int32_t>(instances, 1), false};
  check_updates_at_once(program.requests().pipeline->schedule, recipe, batch);
  Delays delays{std::vector<std::int32_t>(instances, 0), true};
  for (std::size_t i = 0; i < instances; ++i)
    if (pipeline)
      delays.of[i] =
          narrow<std::int32_t>(pipeline->stages.size()) - 1 - pipeline->stage_of(narrow<std::int32_t>(i));
    else if (!told.empty())
      delays.of[i] = narrow<std::int32_t>(told[i]);
  return delays;
}

}  // namespace prun
