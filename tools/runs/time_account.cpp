#include "runs/time_account.hpp"

#include <algorithm>
#include <cmath>

namespace prun {
namespace {

// Sums the time from when a process of the run began until its first step did.
double starting_seconds(const RunLog& log) {
  double sum = 0;
  for (const LoggedPart& part : log.parts) {
    const auto first = std::find_if(log.steps.begin(), log.steps.end(),
                                    [&](const LoggedStep& step) { return step.time >= part.start.time; });
    if (first != log.steps.end() && first->time <= part.end)
      sum += std::max(0.0, first->time - first->seconds - part.start.time);
  }
  return sum;
}

double down_seconds(const RunLog& log) {
  double sum = 0;
  for (std::size_t i = 1; i < log.parts.size(); ++i)
    sum += std::max(0.0, log.parts[i].start.time - log.parts[i - 1].end);
  return sum;
}

double finite(double seconds) { return std::isfinite(seconds) && seconds > 0 ? seconds : 0; }

}  // namespace

TimeAccount account_of(const RunLog& log) {
  TimeAccount account;
  account.wall = std::max(0.0, log.last_time() - log.first_time());
  double kept = 0, masked = 0, exposed = 0, measured = 0, saving = 0, comparing = 0, evaluating = 0;
  for (const LoggedStep& step : log.steps) {
    (step.kept ? kept : masked) += finite(step.seconds);
    saving += finite(step.save_seconds);
    comparing += finite(step.compare_seconds);
    if (step.exposed_seconds < 0) continue;
    ++account.measured;
    exposed += finite(step.exposed_seconds);
    measured += finite(step.seconds);
  }
  for (const LoggedEvaluation& evaluation : log.evaluations) evaluating += finite(evaluation.seconds);
  if (log.finish) saving += finite(log.finish->save_seconds);
  const double share = measured > 0 ? std::min(1.0, exposed / measured) : 0;
  account.shares = {
      {"computing", kept * (1 - share), "steps that count, without exposed communication"},
      {"exposed communication", kept * share,
       "computing held up by exchanges on the first rank: the share of the measured steps, for all"},
      {"saving", saving, "training stood still for a save"},
      {"comparing replicas", comparing, "training stood still to compare ranks"},
      {"evaluating", evaluating, "the loss on validation data"},
      {"lost", masked + finite(log.redone_seconds),
       "steps done again after a resume, and steps whose update was skipped"},
      {"starting", starting_seconds(log), "from a process' start record to its first step"},
      {"down", down_seconds(log), "from the last line of one process to the first of the next"},
  };
  double sum = 0;
  for (const TimeShare& named : account.shares) sum += named.seconds;
  account.shares.push_back({"idle", std::max(0.0, account.wall - sum), "between steps, for anything else"});
  return account;
}

double value_at(const RunLog& log, double share, double LoggedStep::*value) {
  std::vector<double> list;
  for (const LoggedStep& step : log.steps)
    if (std::isfinite(step.*value) && step.*value > 0) list.push_back(step.*value);
  if (list.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(std::floor(share * static_cast<double>(list.size() - 1)));
  std::nth_element(list.begin(), list.begin() + at, list.end());
  return list[static_cast<std::size_t>(at)];
}

}  // namespace prun
