#include "measure/progress.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "base/text.hpp"
#include "estimate/number_text.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

constexpr double said_every = 3;       // counts seconds
constexpr double least_to_tell = 0.3;  // a share of a core: what a desktop does by itself does not matter

// Reads user, nice, system, idle, iowait, irq, softirq and steal of all cores together, in ticks.
std::vector<double> ticks_in(std::string_view stat) {
  std::vector<double> ticks;
  for (const std::string_view word : split(first_line(stat), ' ')) {
    double number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (!word.empty() && error == std::errc() && end == word.data() + word.size()) ticks.push_back(number);
  }
  return ticks;
}

std::string stat_now() {
  std::ostringstream text;
  text << std::ifstream("/proc/stat").rdbuf();
  return text.str();
}

}  // namespace

void PartsDone::advance() {
  ++done_;
  const Clock::time_point now = Clock::now();
  if (done_ == parts_ || std::chrono::duration<double>(now - said_).count() < said_every) return;
  said_ = now;
  say_(what_ + ": " + text(done_, parts_, std::chrono::duration<double>(now - began_).count()));
}

std::string PartsDone::text(int done, int parts, double seconds) {
  return format("%d of %d, about ", done, parts) + time_text(seconds / done * (parts - done), 2) + " left";
}

double busy_cores(std::string_view before, std::string_view after, double cores) {
  constexpr std::size_t idle = 3, waits = 4, counted = 8;  // guests count among the users already
  const std::vector<double> first = ticks_in(before), last = ticks_in(after);
  if (first.size() <= waits || last.size() < first.size()) return 0;
  double all = 0, rest = 0;
  for (std::size_t i = 0; i < std::min(counted, first.size()); ++i) {
    all += last[i] - first[i];
    if (i == idle || i == waits) rest += last[i] - first[i];
  }
  return all > 0 ? (all - rest) / all * cores : 0;
}

std::string busy_note() {
  const std::string before = stat_now();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double cores = std::max(1u, std::thread::hardware_concurrency());
  const double busy = busy_cores(before, stat_now(), cores);
  if (busy < least_to_tell) return {};
  return format(
      "others keep %.1f of this machine's %.0f cores busy, and make all that is measured now look "
      "slower; measure again once they are done",
      busy, cores);
}

}  // namespace prun
