#include "plan/shifted.hpp"

#include "base/narrow.hpp"
#include "prun/sequence_order.hpp"

namespace prun {

std::vector<ShiftedPiece> shifted_pieces(const PlannedExchange& exchange, std::int64_t place,
                                         std::int64_t members) {
  const SequenceOrder order{exchange.chunks > 0 ? 1 : 0, exchange.chunks};
  const std::int64_t parts = order.permutes() ? order.chunks : members, own = parts / members;
  PRUN_CHECK(own * members == parts && exchange.pieces % own == 0, exchange.pieces, " pieces of ", parts,
             " parts among ", members);
  std::vector<std::int64_t> places(static_cast<std::size_t>(parts));  // by number
  for (std::int64_t at = 0; at < parts; ++at) places[static_cast<std::size_t>(order.position(at))] = at;
  std::vector<ShiftedPiece> pieces;
  for (std::int64_t sample = 0; sample < exchange.pieces / own; ++sample)
    for (std::int64_t number = 0; number < parts; ++number) {
      const std::int64_t aim = number + exchange.distance;
      if (aim < 0 || aim >= parts) continue;
      const std::int64_t from = places[static_cast<std::size_t>(number)],
                         to = places[static_cast<std::size_t>(aim)];
      if (from / own == to / own) continue;
      if (from / own == place)
        pieces.push_back({CommKind::send, narrow<std::int32_t>(to / own), sample * own + from % own});
      if (to / own == place)
        pieces.push_back({CommKind::recv, narrow<std::int32_t>(from / own), sample * own + to % own});
    }
  return pieces;
}

}  // namespace prun
