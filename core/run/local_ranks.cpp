#include "run/local_ranks.hpp"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <set>

namespace prun {
namespace {

// Where threads meet.
class Meetings {
 public:
  std::vector<std::string> all_gather(std::string_view channel, std::span<const int> members, int me,
                                      std::string_view mine) {
    std::unique_lock lock(mutex_);
    Round& round = rounds_[{std::string(channel), {members.begin(), members.end()}}];
    changed_.wait(lock, [&] { return given_up_ || round.leaving == 0; });
    give_up_if_asked(channel);
    round.texts[me] = mine;
    const std::size_t size = members.size();
    if (round.texts.size() == size) round.leaving = size;
    changed_.notify_all();
    changed_.wait(lock, [&] { return given_up_ || round.leaving > 0; });
    give_up_if_asked(channel);
    std::vector<std::string> all;
    for (int member : members) all.push_back(round.texts.at(member));
    if (--round.leaving == 0) round.texts.clear();
    changed_.notify_all();
    return all;
  }

  void give_up() {
    const std::scoped_lock lock(mutex_);
    given_up_ = true;
    changed_.notify_all();
  }

 private:
  struct Round {
    std::map<int, std::string> texts;
    std::size_t leaving = 0;
  };

  void give_up_if_asked(std::string_view channel) const {
    if (given_up_) throw_error(ErrorCode::comm_failed, channel, ": another rank has failed");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<std::string, std::vector<int>>, Round> rounds_;
  bool given_up_ = false;
};

class LocalRanks {
 public:
  LocalRanks(const Recipe& recipe, const std::vector<SearchPlace>& places)
      : recipe_(recipe), places_(places) {}

  void run(const std::function<void(Trainer&)>& body) {
    {
      std::vector<std::jthread> threads;
      for (std::int64_t rank = 0; rank < mesh_of(recipe_).world(); ++rank)
        threads.emplace_back([this, rank, &body] { run_rank(rank, body); });
    }
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void run_rank(std::int64_t rank, const std::function<void(Trainer&)>& body) {
    try {
      PluginHost plugins(places_);
      const Assembly assembly(recipe_, plugins, rank);
      Membership membership;
      membership.exchange = [&](std::string_view channel, std::span<const int> members,
                                std::string_view mine) {
        return meetings_.all_gather(channel, members, static_cast<int>(rank), mine);
      };
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
  Meetings meetings_;
  std::mutex mutex_;
  std::set<Trainer*> running_;
  std::exception_ptr error_;
};

}  // namespace

void run_local_ranks(const Recipe& recipe, const std::vector<SearchPlace>& places,
                     const std::function<void(Trainer&)>& body) {
  LocalRanks(recipe, places).run(body);
}

}  // namespace prun
