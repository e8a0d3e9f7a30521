#include "train/local_ranks.hpp"

#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "base/thread.hpp"
#include "execute/meetings.hpp"

namespace prun {
namespace {

class LocalRanks {
 public:
  LocalRanks(const Recipe& recipe, const std::vector<SearchPlace>& places, const Probes& probes)
      : recipe_(recipe), places_(places), probes_(probes) {}

  void run(const std::function<void(Trainer&)>& body) {
    {
      std::vector<std::jthread> threads;
      for (std::int64_t rank = 0; rank < mesh_of(recipe_).world() && !failed(); ++rank)
        start(threads, rank, body);
    }
    if (error_) std::rethrow_exception(error_);
  }

 private:
  // The others would wait for one that cannot be started.
  void start(std::vector<std::jthread>& threads, std::int64_t rank,
             const std::function<void(Trainer&)>& body) {
    try {
      threads.push_back(start_thread<std::jthread>(detail::concat("rank ", rank),
                                                   [this, rank, &body] { run_rank(rank, body); }));
    } catch (const Error&) {
      fail();
    }
  }
  bool failed() {
    const std::scoped_lock lock(mutex_);
    return error_ != nullptr;
  }

  void run_rank(std::int64_t rank, const std::function<void(Trainer&)>& body) {
    try {
      PluginHost plugins(places_);
      const Assembly assembly(recipe_, plugins, rank);
      Membership membership;
      membership.exchange = [&](std::string_view channel, std::span<const int> members,
                                std::string_view mine) {
        return meetings_.all_gather(channel, members, static_cast<int>(rank), mine);
      };
      membership.probes = probes_;
      Trainer trainer(assembly, plugins, membership);
      enter(trainer);
      try {
        body(trainer);
      } catch (...) {
        fail();
      }
      leave(trainer);
    } catch (...) {
      fail();
    }
  }

  void enter(Trainer& trainer) {
    const std::scoped_lock lock(mutex_);
    running_.insert(&trainer);
    if (error_) abort(trainer);
  }
  void leave(Trainer& trainer) {
    const std::scoped_lock lock(mutex_);
    running_.erase(&trainer);
  }
  void fail() {
    const std::scoped_lock lock(mutex_);
    if (!error_) error_ = std::current_exception();
    meetings_.give_up();
    for (Trainer* trainer : running_) abort(*trainer);
  }
  static void abort(Trainer& trainer) {
    if (trainer.communicators()) trainer.communicators()->abort();
  }

  const Recipe& recipe_;
  const std::vector<SearchPlace>& places_;
  const Probes& probes_;
  Meetings meetings_;
  std::mutex mutex_;
  std::set<Trainer*> running_;
  std::exception_ptr error_;
};

}  // namespace

Recipe unpinned(const Recipe& recipe) {
  return recipe.find("device.pin") ? recipe.with("device.pin", "false") : recipe;
}

void run_local_ranks(const Recipe& recipe, const std::vector<SearchPlace>& places,
                     const std::function<void(Trainer&)>& body, const Probes& probes) {
  const Recipe shared = mesh_of(recipe).world() > 1 ? unpinned(recipe) : recipe;
  LocalRanks(shared, places, probes).run(body);
}

}  // namespace prun
