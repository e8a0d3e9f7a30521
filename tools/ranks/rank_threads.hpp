// Runs ranks that are threads of one process: when one fails, all are made to give up.
#pragma once

#include <exception>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/thread.hpp"
#include "execute/communicators.hpp"
#include "execute/meetings.hpp"

namespace prun {

// `Rank` has abort(), which any thread may call.
template <class Rank>
class RankThreads {
 public:
  // Runs body(rank, exchange) on a thread each; raises the first error.
  template <class Body>
  void run(int ranks, const Body& body) {
    {
      std::vector<std::jthread> threads;
      threads.reserve(static_cast<std::size_t>(ranks));
      for (int rank = 0; rank < ranks; ++rank)
        threads.push_back(
            start_thread<std::jthread>("a rank", [this, rank, &body] { run_rank(rank, body); }));
    }
    if (error_) std::rethrow_exception(error_);
  }

  // Runs work(), which the body calls through this; if another rank fails, it ends it by the rank's abort().
  template <class Work>
  void until_aborted(Rank& rank, Work&& work) {
    enter(rank);
    try {
      work();
    } catch (...) {
      fail();
    }
    leave(rank);
  }

 private:
  template <class Body>
  void run_rank(int rank, const Body& body) {
    try {
      body(rank, [this, rank](std::string_view channel, std::span<const int> members, std::string_view mine) {
        return meetings_.all_gather(channel, members, rank, mine);
      });
    } catch (...) {
      fail();
    }
  }

  void enter(Rank& rank) {
    const std::scoped_lock lock(mutex_);
    running_.insert(&rank);
    if (error_) rank.abort();
  }
  void leave(Rank& rank) {
    const std::scoped_lock lock(mutex_);
    running_.erase(&rank);
  }
  void fail() {
    const std::scoped_lock lock(mutex_);
    if (!error_) error_ = std::current_exception();
    meetings_.give_up();
    for (Rank* rank : running_) rank->abort();
  }

  Meetings meetings_;
  std::mutex mutex_;
  std::set<Rank*> running_;
  std::exception_ptr error_;
};

}  // namespace prun
