#include "train/loop/rank.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "execute/communicators.hpp"
#include "launch/flight.hpp"
#include "launch/rendezvous.hpp"
#include "plan/plan.hpp"
#include "train/assemble/assembly.hpp"
#include "train/assemble/host_limits.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/loop/stop_signal.hpp"
#include "train/loop/trainer.hpp"
#include "train/loop/training_run.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------ abort switch

// Makes a rank that waits for another one give up when that one has failed.

// Knows the communicators for as long as their owner holds the lease, and why they were aborted. Any thread
// may use it.
class AbortSwitch {
 public:
  // Lends communicators to the switch; those that come after it was pulled are aborted at once.
  static CommunicatorLease lend(const std::shared_ptr<AbortSwitch>& to, Communicators& communicators) {
    to->set(&communicators);
    return {&communicators, [to](Communicators*) { to->set(nullptr); }};
  }
  void pull(const Error& why) {
    const std::scoped_lock lock(mutex_);
    if (!reason_) reason_ = why;
    if (communicators_) communicators_->abort();
  }
  std::optional<Error> reason() const {
    const std::scoped_lock lock(mutex_);
    return reason_;
  }

 private:
  void set(Communicators* communicators) {
    const std::scoped_lock lock(mutex_);
    communicators_ = communicators;
    if (reason_ && communicators_) communicators_->abort();
  }

  mutable std::mutex mutex_;
  Communicators* communicators_ = nullptr;
  std::optional<Error> reason_;
};

// ------------------------------------------------------------ all ranks

// Records meetings of all ranks in the flight record.

// Lets all ranks meet, so that one that does not come is noticed as in the steps: meeting and connecting
// count as one collective, every later meeting as one of its own.
class AllRanks {
 public:
  AllRanks(FlightRecorder& flight, int world) : flight_(flight) {
    std::vector<int> all(static_cast<std::size_t>(world));
    std::iota(all.begin(), all.end(), 0);
    group_ = flight.add_communicator("all ranks", all);
  }

  template <class Body>
  auto meet(std::string_view occasion, Body&& body) {
    if (!std::exchange(inside_, true)) flight_.enter(group_, connected_ ? occasion : "meet and connect");
    auto result = body();
    if (connected_) leave();
    return result;
  }
  void connected() {
    leave();
    connected_ = true;
  }

 private:
  void leave() {
    if (std::exchange(inside_, false)) flight_.leave(group_);
  }

  FlightRecorder& flight_;
  int group_ = 0;
  bool inside_ = false, connected_ = false;
};

// ------------------------------------------------------------ flight probe

// Writes to the flight record what each queue does.
class FlightProbe final : public Probe {
 public:
  // Maps a queue's name to the group's number in the record.
  using Groups = std::map<std::string, int>;
  static Groups groups_of(FlightRecorder& flight, const Plan& plan, const Communicators& communicators) {
    Groups groups;
    for (std::size_t q = 0; q < plan.queues.size(); ++q)
      if (plan.queues[q].communicates())
        groups[plan.queues[q].name] =
            flight.add_communicator(plan.queues[q].name, communicators.members()[q]);
    return groups;
  }

  // `what` is written before what each call does.
  FlightProbe(FlightRecorder& flight, const Program& program, const Plan& plan, const Groups& groups,
              const std::string& what = {})
      : flight_(flight), first_(plan.calls.data()) {
    for (const Call& call : plan.calls) texts_.push_back(what + call_text(program, plan, call));
    for (const QueueInfo& queue : plan.queues)
      groups_.push_back(queue.communicates() ? groups.at(queue.name) : -1);
  }

  bool live() const noexcept override { return true; }
  void begin_call(std::int32_t queue, const Call& call, std::int64_t, double) noexcept override {
    const int group = groups_[queue];
    if (group < 0)
      flight_.begin_call(text(call));
    else
      flight_.enter(group, text(call));
  }
  void end_call(std::int32_t queue, const Call& call, std::int64_t, double) noexcept override {
    const int group = groups_[queue];
    if (group < 0)
      flight_.end_call(text(call));
    else
      flight_.leave(group);
  }
  void waits(std::int32_t queue, bool waiting, double) noexcept override {
    flight_.wait(groups_[queue], waiting);
  }

 private:
  const std::string& text(const Call& call) const { return texts_[static_cast<std::size_t>(&call - first_)]; }

  FlightRecorder& flight_;
  const Call* first_;
  std::vector<std::string> texts_;
  Numbered<int> groups_;  // groups by queue
};

constexpr std::chrono::milliseconds for_ever = std::chrono::hours(24 * 7);

// Returns how long ranks wait for one, in a collective or when they meet. Our own launcher watches over that
// itself and says more.
std::chrono::milliseconds hang_limit(const Identity& identity, const Recipe& recipe) {
  const std::int64_t seconds = recipe.integer("run.hang_limit");
  if (identity.how == "prun" || seconds == 0) return for_ever;
  return std::min<std::chrono::milliseconds>(for_ever, std::chrono::seconds(seconds));
}

class RankRun {
 public:
  RankRun(Session& session, const Recipe& recipe)
      : session_(session),
        hang_limit_(hang_limit(session.identity(), recipe)),
        all_ranks_(session.flight(), session.identity().world),
        abort_(std::make_shared<AbortSwitch>()) {
    session_.rendezvous().on_failure([abort = abort_](const Error& why) { abort->pull(why); });
    // Our own launcher reads the flight records itself.
    if (session.identity().how != "prun" && session.identity().world > 1)
      heartbeat_.emplace(
          session, hang_limit_ < for_ever ? hang_limit_ : std::chrono::milliseconds(0),
          [abort = abort_] { return abort->reason(); }, [] { return StopSignal::received() != 0; });
  }

  Membership membership() {
    Membership membership;
    membership.exchange = [this](std::string_view channel, std::span<const int> members,
                                 std::string_view mine) {
      return all_ranks_.meet(
          channel, [&] { return session_.rendezvous().all_gather(channel, members, mine, hang_limit_); });
    };
    membership.probes = [this](const Assembly& assembly, Communicators* communicators) {
      all_ranks_.connected();
      if (!communicators) return std::vector<Probe*>{};
      groups_ = FlightProbe::groups_of(session_.flight(), assembly.plan(), *communicators);
      probe_.emplace(session_.flight(), assembly.program(), assembly.plan(), groups_);
      return std::vector<Probe*>{&*probe_};
    };
    membership.evaluation_probes = [this](const Assembly& assembly, const Communicators* communicators) {
      if (!communicators) return std::vector<Probe*>{};
      evaluation_probe_.emplace(session_.flight(), *assembly.evaluation(), assembly.evaluation_plan(),
                                groups_, "evaluation: ");
      return std::vector<Probe*>{&*evaluation_probe_};
    };
    membership.other_probes = [this](const Assembly& assembly, const Plan& plan, const Communicators* with) {
      if (!with) return std::vector<Probe*>{};
      other_probes_.emplace_back(session_.flight(), assembly.program(), plan, groups_);
      return std::vector<Probe*>{&other_probes_.back()};
    };
    membership.before_step = [this](std::int64_t step) { session_.flight().begin_step(step); };
    membership.saving = [this] { session_.flight().saving(); };
    membership.connected = [abort = abort_](Communicators& communicators) {
      return AbortSwitch::lend(abort, communicators);
    };
    return membership;
  }
  std::optional<Error> why_aborted() const { return abort_->reason(); }

 private:
  Session& session_;
  std::chrono::milliseconds hang_limit_;
  AllRanks all_ranks_;
  std::shared_ptr<AbortSwitch> abort_;
  FlightProbe::Groups groups_;
  std::optional<FlightProbe> probe_, evaluation_probe_;
  std::deque<FlightProbe> other_probes_;
  std::optional<Heartbeat> heartbeat_;
};

int report(Session& session, ErrorCode code, const char* message) {
  session.rendezvous().report_failure(code, message);
  if (session.identity().how != "prun")  // our own launcher reports it for all
    std::fprintf(stderr, "prun: rank %d: %s\n", session.identity().rank, message);
  return exit_code(code);
}

}  // namespace

void check_world(const Identity& identity, const Recipe& recipe) {
  const std::int64_t world = mesh_of(recipe).world();
  if (identity.world == world) return;
  throw_error(ErrorCode::bad_input, identity.how, " started ", identity.world,
              identity.world == 1 ? " rank" : " ranks", ", the recipe's mesh has ", world, "; start ", world,
              " or change [mesh]");
}

void await_all_ranks(Session& session, const Recipe& recipe) {
  std::vector<int> all(static_cast<std::size_t>(session.identity().world));
  std::iota(all.begin(), all.end(), 0);
  session.rendezvous().barrier("arrival", all, hang_limit(session.identity(), recipe));
}

LocalPlace place_of(const Identity& rank) { return {rank.local_rank, rank.local_world, rank.how == "prun"}; }

Recipe with_chosen_device(const Recipe& recipe, const Identity& rank) {
  const char* const chosen = std::getenv(chosen_device_variable);
  const bool is_told = rank.how == "prun" && chosen;
  return is_told && recipe.section("device").plugin() == automatic ? recipe.with("device.plugin", chosen)
                                                                   : recipe;
}

LaunchOptions ranks_of(const Assembly& assembly, PluginHost& plugins, const std::vector<std::string>& command,
                       const std::filesystem::path& logs) {
  check_fits_one_host(assembly);
  make_room_for_ranks(assembly, plugins);
  LaunchOptions options;
  options.ranks = static_cast<int>(assembly.mesh().world());
  options.arguments = command;
  options.environment = log_variables(assembly.recipe(), plugins, logs);
  options.environment.emplace_back(chosen_device_variable, assembly.recipe().section("device").plugin());
  options.shared_folder_variables = shared_folder_variables(assembly.recipe(), plugins);
  options.hang_limit = std::chrono::seconds(assembly.recipe().integer("run.hang_limit"));
  return options;
}

int end_as_rank(Session& session, const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error& error) {
    return report(session, error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return report(session, ErrorCode::unsupported, out_of_memory);
  }
}

int with_membership(Session& session, const Recipe& recipe,
                    const std::function<int(const Membership& membership)>& body) {
  RankRun run(session, recipe);
  try {
    return body(run.membership());
  } catch (const Error& error) {
    const std::optional<Error> reason = run.why_aborted();
    if (error.code() != ErrorCode::comm_failed || !reason) throw;
    const ErrorCode code = reason->code() == ErrorCode::hang ? ErrorCode::hang : ErrorCode::comm_failed;
    throw_error(code, reason->what(), "; this rank ends because of that");
  }
}

int train_rank(const Assembly& assembly, PluginHost& plugins, const std::string& resume_command,
               Session& session) {
  return with_membership(session, assembly.recipe(), [&](const Membership& membership) {
    return train(assembly, plugins, resume_command, membership);
  });
}

int train_alone(const Assembly& assembly, PluginHost& plugins, const std::string& resume_command,
                FlightRecorder& flight) {
  std::optional<FlightProbe> probe, evaluation_probe;
  std::deque<FlightProbe> other_probes;
  Membership membership;
  membership.probes = [&](const Assembly& of, Communicators*) {
    probe.emplace(flight, of.program(), of.plan(), FlightProbe::Groups{});
    return std::vector<Probe*>{&*probe};
  };
  membership.evaluation_probes = [&](const Assembly& of, Communicators*) {
    evaluation_probe.emplace(flight, *of.evaluation(), of.evaluation_plan(), FlightProbe::Groups{},
                             "evaluation: ");
    return std::vector<Probe*>{&*evaluation_probe};
  };
  membership.other_probes = [&](const Assembly& of, const Plan& plan, Communicators*) {
    other_probes.emplace_back(flight, of.program(), plan, FlightProbe::Groups{});
    return std::vector<Probe*>{&other_probes.back()};
  };
  membership.before_step = [&](std::int64_t step) { flight.begin_step(step); };
  return train(assembly, plugins, resume_command, membership);
}

}  // namespace prun
