#include "launch/rank_roster.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "launch/socket.hpp"

namespace prun {
namespace {

constexpr int reads_at_once = 16;  // reads of 64 KiB from one rank

}  // namespace

RankRoster::RankRoster(int epoll, int world, OnFrame on_frame, OnEnd on_end)
    : epoll_(epoll),
      on_frame_(std::move(on_frame)),
      on_end_(std::move(on_end)),
      ranks_(static_cast<std::size_t>(world)) {}

void RankRoster::adopt(int rank, FileDescriptor socket) {
  set_nonblocking(socket.get());
  ranks_[rank].connection = std::make_unique<Connection>(epoll_, id_of(rank), std::move(socket));
  ranks_[rank].seen = true;
}

void RankRoster::let_in(int rank, std::unique_ptr<Connection> connection) {
  connection->rename(id_of(rank));
  Rank& its = ranks_[rank];
  its.connection = std::move(connection);
  its.seen = true;
  if (its.connection->ended()) take_end(rank);
}

// Notes the end of a connection, which stays there until sweep(): another function may be using it.
void RankRoster::take_end(int rank) {
  Rank& its = ranks_[rank];
  if (std::exchange(its.gone, true)) return;
  if (!its.good_bye) lost_.push_back({rank, ErrorCode::rank_died, its.connection->how()});
  on_end_(rank);
}

void RankRoster::sweep() {
  for (Rank& rank : ranks_)
    if (rank.gone) rank.connection.reset();
}

void RankRoster::send(int rank, std::string_view bytes) {
  Rank& its = ranks_[rank];
  if (!its.connection || its.gone) return;
  its.connection->send(bytes);
  if (its.connection->ended()) take_end(rank);
}

void RankRoster::read(int rank) {
  Rank& its = ranks_[rank];
  std::array<char, 65536> buffer;
  for (int i = 0; i < reads_at_once && !its.gone; ++i) {
    const std::string_view bytes = its.connection->read(buffer);
    if (bytes.empty()) return;
    its.frames.add(bytes);
    try {
      while (const auto frame = its.frames.next()) on_frame_(rank, *frame);
    } catch (const Error&) {
      its.connection->end();
      return;
    }
  }
}

void RankRoster::process(int rank, bool has_room, bool has_more) {
  Rank& its = ranks_[rank];
  if (!its.connection || its.gone) return;
  if (has_room) its.connection->write();
  if (has_more && !its.connection->ended()) read(rank);
  if (its.connection->ended()) take_end(rank);
}

bool RankRoster::all_gone() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.seen && rank.gone; });
}

bool RankRoster::all_came() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.seen; });
}

const RankReport* RankRoster::lost(int rank) const {
  const auto found =
      std::find_if(lost_.begin(), lost_.end(), [&](const RankReport& report) { return report.rank == rank; });
  return found == lost_.end() ? nullptr : &*found;
}

std::vector<RankReport> RankRoster::take_lost() { return std::exchange(lost_, {}); }

}  // namespace prun
