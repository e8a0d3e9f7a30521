// Asks the system about processes, UCX about connections, and reads farewells.
#include "member_watch.hpp"

namespace prun::ucx {

std::optional<Trouble> MemberWatch::look(Wire& wire, const RunQueue& runs) {
  std::optional<Trouble> trouble = look_for_lost(wire);
  return trouble ? trouble : look_for_left(runs);
}

// A farewell may be among messages that arrived and were not looked at; so may what its sender sent before.
std::optional<Trouble> MemberWatch::look_for_lost(Wire& wire) const {
  for (std::int32_t i = 0; i < size(); ++i) {
    if (i == rank_ || farewells_.has_left(i)) continue;
    const bool gone = peer(i).watched && !peer(i).process.running();
    const ucs_status_t state = wire.state_of(i);
    if (!gone && state == UCS_OK) continue;
    while (wire.progress()) {
    }
    if (farewells_.has_left(i)) continue;
    return Trouble{i, gone ? "its process is gone; the end of its log says why"
                           : std::string("the connection is lost: ") + ucs_status_string(state)};
  }
  return std::nullopt;
}

std::optional<Trouble> MemberWatch::look_for_left(const RunQueue& runs) {
  for (std::int32_t i = 0; i < size(); ++i) {
    if (i == rank_ || !farewells_.has_left(i)) continue;
    // This is not reported at first sight: the member whose death made that one give up is the better news.
    bool& gave_up = peer(i).gave_up;
    if (gave_up) return Trouble{i, "it has given up; its own message says why"};
    gave_up = farewells_.from(i).failed;
    if (gave_up) continue;
    for (const Run* run : runs.active())
      if (!run->done() && needs(*run, i)) return Trouble{i, "it left before this operation"};
  }
  return std::nullopt;
}

bool MemberWatch::needs(const Run& run, std::int32_t member) const {
  const Farewell& farewell = farewells_.from(member);
  switch (run.op().kind) {
    case CommKind::send: return run.op().peer == member && run.number() >= farewell.received;
    case CommKind::recv: return run.op().peer == member && run.number() >= farewell.sent;
    default: return run.number() >= farewell.collectives;
  }
}

void MemberWatch::say_goodbye(Wire& wire, const RunQueue& runs, bool broken) {
  for (std::int32_t i = 0; i < size(); ++i) {
    farewells_.to(i) = runs.started_with(i);
    farewells_.to(i).failed = broken;
  }
  farewells_.say(wire);
}

}  // namespace prun::ucx
