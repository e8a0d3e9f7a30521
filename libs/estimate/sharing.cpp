#include "estimate/sharing.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "prun/error.hpp"

namespace prun {

std::size_t Sharing::add_carrier(double bytes_per_second) {
  PRUN_CHECK(bytes_per_second > 0, bytes_per_second, " bytes a second");
  carriers_.push_back(bytes_per_second);
  return carriers_.size() - 1;
}

void Sharing::begin(std::size_t tag, double at, double seconds, std::vector<Load> loads) {
  PRUN_CHECK(at >= now_ && seconds > 0, "a work of ", seconds, " s begins at ", at, ", after ", now_);
  works_.push_back({tag, at, seconds, 1, std::move(loads)});
}

std::optional<Sharing::Ended> Sharing::next() {
  while (!works_.empty()) {
    const auto by_begin = [](const Work& a, const Work& b) { return a.since < b.since; };
    if (going_on().empty()) now_ = std::min_element(works_.begin(), works_.end(), by_begin)->since;
    const std::vector<Work*> works = going_on();
    set_speeds(works);
    const Work* const first = *std::min_element(
        works.begin(), works.end(), [](const Work* a, const Work* b) { return a->end() < b->end(); });
    double begins = std::numeric_limits<double>::infinity();
    for (const Work& work : works_)
      if (work.since > now_) begins = std::min(begins, work.since);
    if (begins < first->end()) {
      now_ = begins;
      continue;
    }
    now_ = first->end();
    const Ended ended{first->tag, now_};
    works_.erase(works_.begin() + (first - works_.data()));
    return ended;
  }
  return {};
}

std::vector<Sharing::Work*> Sharing::going_on() {
  std::vector<Work*> works;
  for (Work& work : works_)
    if (work.since <= now_) works.push_back(&work);
  return works;
}

// A call whose speed stays is not touched, so that its times are not rounded again.
void Sharing::set_speeds(std::span<Work* const> works) const {
  std::vector<double> speeds(works.size(), 1);
  for (std::size_t carrier = 0; carrier < carriers_.size(); ++carrier) {
    double asked = 0;
    const auto each = [&](auto&& body) {
      for (std::size_t i = 0; i < works.size(); ++i)
        for (const Load& load : works[i]->loads)
          if (load.carrier == carrier) body(load, speeds[i]);
    };
    each([&](const Load& load, double speed) { asked += load.bytes_per_second * speed * load.times; });
    if (asked <= carriers_[carrier]) continue;
    each([&](const Load& load, double& speed) {
      if (load.is_held_up) speed *= carriers_[carrier] / asked;
    });
  }
  for (std::size_t i = 0; i < works.size(); ++i) {
    Work& work = *works[i];
    if (work.speed == speeds[i]) continue;
    work.left -= (now_ - work.since) * work.speed;
    work.since = now_;
    work.speed = speeds[i];
  }
}

}  // namespace prun
