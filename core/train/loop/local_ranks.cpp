#include "train/loop/local_ranks.hpp"

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

  void run(const std::function<void(Trainer&)>& body, const std::stop_token& stop) {
    {
      const std::stop_callback on_stop(stop, [this] {
        give_up(std::make_exception_ptr(Error(ErrorCode::comm_failed, "the ranks were told to stop")));
      });
      std::vector<std::jthread> threads;
      for (std::int64_t rank = 0; rank < mesh_of(recipe_).world() && !failed(); ++rank)
        start(threads, rank, body);
    }
    if (error_) std::rethrow_exception(error_);
  }

 private:
  // Starts a thread; if one cannot be started, the others would wait for it.
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
      const LocalPlace place{static_cast<int>(rank), static_cast<int>(mesh_of(recipe_).world())};
      const CoresOfRank cores(place.rank, place.ranks);
      PluginHost plugins(places_, libraries_);
      plugins.set_local(place);
      const Assembly assembly(recipe_, plugins, rank);
      refuse_threads(assembly);
      if (probes_ && rank == 0) assembly.check_no_deadlock(true);
      Membership membership;
      membership.exchange = [&](std::string_view channel, std::span<const int> members,
                                std::string_view mine) {
        return meetings_.all_gather(channel, members, static_cast<int>(rank), mine);
      };
      membership.probes = probes_;
      membership.full_steps = static_cast<bool>(probes_);
      membership.connected = [this](Communicators& communicators) { return lend(communicators); };
      Trainer trainer(assembly, plugins, membership);
      try {
        body(trainer);
      } catch (...) {
        fail();
      }
    } catch (...) {
      fail();
    }
  }

  void take_back(Communicators* communicators) {
    const std::scoped_lock lock(mutex_);
    lent_.erase(communicators);
  }

  static void refuse_threads(const Assembly& assembly) {
    if (assembly.mesh().world() > 1 && assembly.device_info().one_process_each)
      throw_error(
          ErrorCode::unsupported, "cannot run ranks as threads on device '",
          assembly.device_info().name.view(),
          "', which needs a process for each; run the recipe itself, or use device.plugin = \"cpu\" here");
  }

  CommunicatorLease lend(Communicators& communicators) {
    const std::scoped_lock lock(mutex_);
    lent_.insert(&communicators);
    if (error_) communicators.abort();
    return {&communicators, [this](Communicators* lent) { take_back(lent); }};
  }
  void fail() { give_up(std::current_exception()); }
  void give_up(const std::exception_ptr& why) {
    const std::scoped_lock lock(mutex_);
    if (!error_) error_ = why;
    meetings_.give_up();
    for (Communicators* communicators : lent_) communicators->abort();
  }

  const Recipe& recipe_;
  const std::vector<SearchPlace>& places_;
  const Probes& probes_;
  const std::shared_ptr<SharedLibraries> libraries_ = std::make_shared<SharedLibraries>();
  Meetings meetings_;
  std::mutex mutex_;
  std::set<Communicators*> lent_;
  std::exception_ptr error_;
};

}  // namespace

Recipe unpinned(const Recipe& recipe) {
  return recipe.find("device.pin") ? recipe.with("device.pin", "false") : recipe;
}

void run_local_ranks(const Recipe& recipe, const std::vector<SearchPlace>& places,
                     const std::function<void(Trainer&)>& body, const Probes& probes,
                     const std::stop_token& stop) {
  // The mesh is read once for all of them: reading a recipe again calls the plugins of its first reader.
  const auto world = static_cast<int>(mesh_of(recipe).world());
  const bool shared = world > 1 && !CoresOfRank(0, world).dealt();
  const Recipe computing = shared ? unpinned(recipe) : recipe;
  LocalRanks(computing, places, probes).run(body, stop);
}

}  // namespace prun
