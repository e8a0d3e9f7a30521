// Says in words what a record states.
#include <algorithm>
#include <cstdio>
#include <set>

#include "launch/flight.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

std::string for_how_long(std::int64_t since_ns, std::optional<std::int64_t> now_ns) {
  if (!now_ns) return {};
  char text[48];
  const double seconds = (static_cast<double>(*now_ns) - static_cast<double>(since_ns)) * 1e-9;
  std::snprintf(text, sizeof text, " for %.1f s", std::clamp(seconds, 0.0, 1e9));
  return text;
}

std::string describe_call(const FlightSnapshot& snapshot) {
  if (const std::string call = call_under_way(snapshot); !call.empty()) return ", in '" + call + "'";
  for (std::size_t i = snapshot.events.size(); i-- > 0;) {
    const FlightEvent& event = snapshot.events[i];
    switch (event.kind) {
      case FlightKind::call_begin:
      case FlightKind::call_end: return ", after '" + event.text + "'";
      case FlightKind::note: return ", after the note '" + event.text + "'";
      case FlightKind::step_begin: return ", at its beginning";
      case FlightKind::collective_end: return ", after a collective";
      case FlightKind::collective_begin: return ", in " + event.text;
      case FlightKind::step_end: return "";
    }
  }
  return "";
}

}  // namespace

std::string call_under_way(const FlightSnapshot& snapshot) {
  std::multiset<std::string> ended;
  for (std::size_t i = snapshot.events.size(); i-- > 0;) {
    const FlightEvent& event = snapshot.events[i];
    if (event.kind == FlightKind::call_end) ended.insert(event.text);
    if (event.kind != FlightKind::call_begin) continue;
    const auto its_end = ended.find(event.text);
    if (its_end == ended.end()) return event.text;
    ended.erase(its_end);
  }
  return "";
}

std::string describe_flight(const FlightSnapshot& snapshot, std::optional<std::int64_t> now_ns) {
  std::string out = "before the first step";
  if (snapshot.step >= 0) out = detail::concat(snapshot.in_step ? "step " : "after step ", snapshot.step);
  const FlightCommunicator* inside = nullptr;
  for (const FlightCommunicator& communicator : snapshot.communicators)
    if (communicator.inside() && (!inside || communicator.entered_ns < inside->entered_ns))
      inside = &communicator;
  if (!inside) return out + describe_call(snapshot);
  return detail::concat(out, ", inside ", inside->operation, " (number ", inside->entered, " of '",
                        inside->name, "')", for_how_long(inside->entered_ns, now_ns));
}

std::string last_exchange(const FlightSnapshot& snapshot) {
  const FlightCommunicator* last = nullptr;
  for (const FlightCommunicator& communicator : snapshot.communicators)
    if (communicator.entered > 0 && (!last || communicator.entered_ns > last->entered_ns))
      last = &communicator;
  if (!last) return "";
  return detail::concat(last->operation, " (number ", last->entered, " of '", last->name, "'), ",
                        last->inside() ? "not done" : "done");
}

std::string it_was(const std::string& doing) {
  return (doing.starts_with("step") ? "it was in " : "it was ") + doing;
}

}  // namespace prun
