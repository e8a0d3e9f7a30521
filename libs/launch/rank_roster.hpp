// Holds the ranks' connections to the rendezvous: which ranks have come, which are gone, and how. Nothing
// here blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/durable_file.hpp"
#include "base/numbered.hpp"
#include "launch/connection.hpp"
#include "launch/rendezvous_frames.hpp"

namespace prun {

struct RankReport {
  int rank = -1;
  ErrorCode code = ErrorCode::internal;
  std::string text;
};

class RankRoster {
 public:
  // Is called with each frame of a rank; if it throws, the rank's connection ends.
  using OnFrame = std::function<void(int rank, const Frame& frame)>;
  // Is called once for each rank whose connection has ended.
  using OnEnd = std::function<void(int rank)>;

  RankRoster(int epoll, int world, OnFrame on_frame, OnEnd on_end);

  // Returns the id of the rank's events: 1 + rank.
  static std::uint64_t id_of(int rank) { return static_cast<std::uint64_t>(rank) + 1; }

  // Adopts a connected socket whose other end belongs to this rank.
  void adopt(int rank, FileDescriptor socket);
  // Takes the connection of a rank that has proved who it is.
  void let_in(int rank, std::unique_ptr<Connection> connection);

  // Handles a rank's events.
  void process(int rank, bool has_room, bool has_more);
  // Sends to a rank, if it is here.
  void send(int rank, std::string_view bytes);
  // Must be called when a rank has said goodbye: its end is no loss.
  void take_goodbye(int rank) { ranks_[rank].good_bye = true; }
  // Closes connections that have ended; no other function may be using one.
  void sweep();

  bool has_come(int rank) const { return ranks_[rank].seen; }
  bool is_gone(int rank) const { return ranks_[rank].gone; }
  bool all_came() const;
  bool all_gone() const;
  // Returns how the rank's connection ended without a goodbye, since the last call of take_lost(), or null.
  const RankReport* lost(int rank) const;
  std::vector<RankReport> take_lost();

 private:
  struct Rank {
    std::unique_ptr<Connection> connection;  // null if the rank has not come, or is gone
    FrameReader frames{request_limit};
    bool seen = false, gone = false, good_bye = false;
  };

  void read(int rank);
  void take_end(int rank);

  int epoll_;
  OnFrame on_frame_;
  OnEnd on_end_;
  Numbered<Rank> ranks_;
  std::vector<RankReport> lost_;
};

}  // namespace prun
