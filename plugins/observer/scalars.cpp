#include "scalars.hpp"

#include <algorithm>

#include "tally_summary.hpp"

namespace prun {
namespace {

// Adds names such as "block.choices/most/3", of layer 3.
void add_tally(const TallyInfo& tally, Scalars& scalars) {
  const std::string name(tally.name.view());
  for (std::int64_t layer = 0; layer < tally.layers; ++layer) {
    const std::int64_t columns = columns_of(tally);
    for (std::int64_t column = 0; is_listed_whole(tally) && column < columns; ++column)
      scalars.push_back(
          {detail::concat(name, "/", column, "/", layer), tally.numbers.data[layer * columns + column]});
    if (is_listed_whole(tally)) continue;
    const TallySummary summary = summary_of(tally, layer);
    scalars.push_back({detail::concat(name, "/least/", layer), summary.least});
    scalars.push_back({detail::concat(name, "/most/", layer), summary.most});
  }
}

}  // namespace

Scalars scalars_of(const StepInfo& info, const FlopRates& rates) {
  Scalars scalars = {{"train/loss", info.loss},
                     {"train/grad_norm", info.grad_norm},
                     {"train/lr", info.lr},
                     {"train/tokens", static_cast<double>(info.all_tokens)},
                     {"time/step_seconds", info.seconds}};
  if (info.loss_scale > 0) scalars.push_back({"train/loss_scale", info.loss_scale});
  if (!info.kept) scalars.push_back({"train/skipped_update", 1});
  if (info.seconds > 0) {
    const double rate = static_cast<double>(info.tokens) / info.seconds;
    scalars.push_back({"throughput/tokens_per_second", rate});
    if (rates.peak_flops > 0)
      scalars.push_back({"throughput/mfu", rate * rates.flops_per_token / rates.peak_flops});
    if (info.exposed_seconds >= 0)
      scalars.push_back({"throughput/exposed_communication", info.exposed_seconds / info.seconds});
  }
  if (info.watts > 0) {
    scalars.push_back({"device/watts", info.watts});
    scalars.push_back({"device/clock_mhz", info.clock_mhz});
    scalars.push_back({"throughput/joules_per_token", info.joules / static_cast<double>(info.tokens)});
  }
  for (const EvaluatedLoss& one : info.losses)
    scalars.push_back({detail::concat("train/loss/", one.name.view()), one.loss});
  for (const TallyInfo& tally : info.tallies) add_tally(tally, scalars);
  if (info.save_seconds > 0) scalars.push_back({"time/save_seconds", info.save_seconds});
  return scalars;
}

Scalars scalars_of(const EvaluationInfo& info) {
  Scalars scalars = {{"eval/loss", info.loss}, {"time/eval_seconds", info.seconds}};
  for (const EvaluatedLoss& set : info.sets)
    scalars.push_back({detail::concat("eval/loss/", set.name.view()), set.loss});
  return scalars;
}

Scalars scalars_of(const FinishInfo& info) {
  std::int64_t host = 0, device = 0;
  for (const RankMemory& rank : info.memory) {
    host = std::max(host, rank.peak_bytes);
    device = std::max(device, rank.device_bytes);
  }
  Scalars scalars;
  if (host > 0) scalars.push_back({"memory/peak_bytes", static_cast<double>(host)});
  if (device > 0) scalars.push_back({"memory/device_bytes", static_cast<double>(device)});
  return scalars;
}

}  // namespace prun
