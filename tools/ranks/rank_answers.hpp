// Collects answers of all ranks of a recipe once they have trained some steps: a text each. They are threads
// of this process or, if the device requires it, processes that run the command of this one again.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/thread.hpp"
#include "execute/communicators.hpp"
#include "execute/meetings.hpp"
#include "launch/identity.hpp"
#include "train/loop/trainer.hpp"

namespace prun {

// ------------------------------------------------------------------- rank answers

// States what each rank does, and which probes observe its queues. Threads share one.
struct Question {
  std::function<std::string(Trainer& trainer)> body;
  Probes probes;  // probes of full steps: no batch grows
};
// Makes the question, once in each process that has ranks, whose devices are told their place on the host.
using MakeQuestion = std::function<Question(LocalPlace place)>;

// Returns the answers, by rank. `command` has the words that this process was started with; without them
// ranks are threads, or refused if they cannot be. A process that is asked must come to answer() with the
// same recipe and question. If its ranks fail, this throws; if they are stopped by a signal, so is this
// process.
std::vector<std::string> ask_ranks(const Recipe& recipe, const std::vector<SearchPlace>& places,
                                   const MakeQuestion& question,
                                   const std::vector<std::string>& command = {});

// Says whether the ranks are processes, if the command is known.
bool ranks_are_processes(const Recipe& recipe, PluginHost& plugins);
// Does the same with processes, whatever the device would allow: as the recipe is trained.
std::vector<std::string> ask_processes(const Recipe& recipe, PluginHost& plugins,
                                       const std::vector<std::string>& command,
                                       Purpose purpose = Purpose::training);

// Says whether this process is a rank that another one asks; the next functions return which, and its exit
// code.
bool is_asked();
std::optional<Identity> asked_rank();
int answer(const Recipe& recipe, const std::vector<SearchPlace>& places, const MakeQuestion& question);

// Serves a question that needs no training: it holds what a process has that is one of the ranks.
struct Member {
  PluginHost& plugins;
  const Membership& membership;
  int rank = 0;
  LocalPlace place;
};
int answer_as_member(const Recipe& recipe, const std::vector<SearchPlace>& places,
                     const std::function<std::string(const Member& member)>& body);

// Returns which of several ranks this process is that another launcher has started, on one host or many:
// srun, torchrun, mpirun. These ask each other; nothing where this process is none of them.
std::optional<Identity> launched_rank();
// Gives all ranks' answers, by rank, to `take` on the first; returns the exit code.
int answer_each_other(const Recipe& recipe, const std::vector<SearchPlace>& places,
                      const std::function<std::string(const Member& member)>& body,
                      const std::function<void(const std::vector<std::string>& answers)>& take);

// ------------------------------------------------------------------- rank threads
// Runs ranks that are threads of one process: when one fails, all are made to give up.

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
