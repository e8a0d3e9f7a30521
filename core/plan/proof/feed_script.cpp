#include "plan/proof/feed_script.hpp"

#include "plan/proof/events.hpp"

namespace prun {

void feed_script(const Plan& plan, const Call& call, std::int64_t round, const FedCall& fed,
                 std::vector<FedPiece>& script) {
  using Kind = FedPiece::Kind;
  script.clear();
  const auto stamp = [&] {
    if (fed.stamps) script.push_back({Kind::stamp});
  };
  const auto edge = [&](std::size_t wait) {
    if (fed.edges && is_edge(plan, call, wait)) script.push_back({Kind::edge});
  };
  stamp();
  for (std::size_t i = 0; i < call.waits.size(); ++i) {
    edge(i);
    if (round >= call.waits[i].steps_ago) script.push_back({Kind::wait, i});
    stamp();
  }
  edge(call.waits.size());
  for (std::size_t i = 0; i < fed.works; ++i) {
    script.push_back({Kind::work, i});
    stamp();
  }
  const std::size_t at_once = fed.one_by_one ? 1 : fed.exchanges;
  for (std::size_t begun = 0; begun < fed.exchanges;) {
    script.push_back({Kind::exchanges, begun += at_once});
    stamp();
  }
  if (fed.event) script.push_back({Kind::event});
  if (fed.counter) script.push_back({Kind::counter});
}

}  // namespace prun
