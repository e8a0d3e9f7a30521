#include "simulate/ends.hpp"

#include <algorithm>

#include "simulate/standstill.hpp"

namespace prun {
namespace {

// Holds the least limits; 0: there is none.
struct Least {
  std::int64_t depth = 0, resident = 0;
};

class Trial {
 public:
  Trial(std::span<const SimulatedRank> ranks, const Limits& limits) : ranks_(ranks), limits_(limits) {}

  // Says why the steps do not end, or returns nothing.
  std::optional<std::string> stuck() const { return standstill(ranks_, limits_); }
  // Says whether the steps end if limits are at least these.
  bool ends_with(Least least) const {
    const auto raised = [](std::int64_t own, std::int64_t to) {
      return own == 0 || to == 0 ? 0 : std::max(own, to);
    };
    const auto limits_of = [&](const QueueInfo& queue) {
      QueueLimits limits = limits_.of(queue);
      limits.depth = raised(limits.depth, least.depth);
      limits.resident = raised(limits.resident, least.resident);
      return limits;
    };
    return !standstill(ranks_, {limits_of, limits_.stamps});
  }
  // Returns the smallest limits that there are.
  Least given() const {
    Least least;
    const auto take = [](std::int64_t& least_of, std::int64_t limit) {
      if (limit > 0) least_of = least_of > 0 ? std::min(least_of, limit) : limit;
    };
    for (const SimulatedRank& rank : ranks_)
      for (const QueueInfo& queue : rank.plan->queues) {
        const QueueLimits limits = limits_.of(queue);
        if (!limits.asynchronous) continue;
        take(least.depth, limits.depth);
        take(least.resident, limits.resident);
      }
    return least;
  }

 private:
  std::span<const SimulatedRank> ranks_;
  const Limits& limits_;
};

// Raises the number until it is enough, which some number is, and so is every larger one.
template <class Enough>
void raise_to_least(std::int64_t& number, Enough&& enough) {
  std::int64_t low = 0;
  while (!enough()) {
    low = number;
    number *= 2;
  }
  if (low == 0) return;  // the number was enough already
  for (std::int64_t high = number; high - low > 1;) {
    number = low + (high - low) / 2;
    (enough() ? high : low) = number;
    number = high;
  }
}

// Returns one limit alone, if that is enough; otherwise the least depth, and what more must be allowed with
// it.
Least least_that_do(const Trial& trial, const Least& given) {
  Least least = given;
  const std::int64_t resident = trial.ends_with({0, given.resident}) ? given.resident : 0;
  if (!trial.ends_with({given.depth, 0}))
    raise_to_least(least.depth, [&] { return trial.ends_with({least.depth, resident}); });
  raise_to_least(least.resident, [&] { return trial.ends_with(least); });
  return least;
}

}  // namespace

void check_steps_end(std::span<const SimulatedRank> ranks, const Limits& limits) {
  const Trial trial(ranks, limits);
  const std::optional<std::string> why = trial.stuck();
  if (!why) return;
  if (!trial.ends_with({})) throw_error(ErrorCode::unsupported, *why);
  const Least given = trial.given(), least = least_that_do(trial, given);
  std::string missing;
  if (least.depth > given.depth)
    missing = detail::concat("the device's queues take ", given.depth, " pieces of work and must take ",
                             least.depth);
  if (least.resident > given.resident)
    missing += detail::concat(missing.empty() ? "" : ", ", "a rank may have ", given.resident,
                              " exchanges under way at a time and must have ", least.resident);
  throw_error(ErrorCode::unsupported, missing,
              ", or this layout stands still; take a device or comm plugin that allows it, or another "
              "schedule: ",
              *why);
}

}  // namespace prun
