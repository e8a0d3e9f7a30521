#include "run/rank.hpp"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "plan/call_text.hpp"

namespace prun {
namespace {

// Writes down what each queue does.
class FlightProbe final : public Probe {
 public:
  FlightProbe(FlightRecorder& flight, const Assembly& assembly, const Communicators& communicators)
      : flight_(flight), first_(assembly.plan().calls.data()) {
    for (const Call& call : assembly.plan().calls)
      texts_.push_back(call_text(assembly.program(), assembly.plan(), call));
    const std::vector<QueueInfo>& queues = assembly.plan().queues;
    for (std::size_t q = 0; q < queues.size(); ++q)
      groups_.push_back(
          queues[q].axis < 0 ? -1 : flight.add_communicator(queues[q].name, communicators.members()[q]));
  }

  void begin_call(std::int32_t queue, const Call& call, std::int64_t) noexcept override {
    const int group = groups_[static_cast<std::size_t>(queue)];
    if (group < 0)
      flight_.begin_call(text(call));
    else
      flight_.enter(group, text(call));
  }
  void end_call(std::int32_t queue, const Call& call, std::int64_t) noexcept override {
    const int group = groups_[static_cast<std::size_t>(queue)];
    if (group < 0)
      flight_.end_call(text(call));
    else
      flight_.leave(group);
  }
  void waits(std::int32_t queue, bool waiting) noexcept override {
    flight_.wait(groups_[static_cast<std::size_t>(queue)], waiting);
  }

 private:
  const std::string& text(const Call& call) const { return texts_[static_cast<std::size_t>(&call - first_)]; }

  FlightRecorder& flight_;
  const Call* first_;
  std::vector<std::string> texts_;
  std::vector<int> groups_;  // by queue
};

// The communicators as long as they live, for whoever has to abort them, and why that was done.
class AbortSwitch {
 public:
  void set(Communicators* communicators) {
    const std::scoped_lock lock(mutex_);
    communicators_ = communicators;
    if (reason_ && communicators_) communicators_->abort();
  }
  void pull(const Error& why) {
    const std::scoped_lock lock(mutex_);
    if (!reason_) reason_ = why;
    if (communicators_) communicators_->abort();
  }
  std::optional<Error> reason() {
    const std::scoped_lock lock(mutex_);
    return reason_;
  }

 private:
  std::mutex mutex_;
  Communicators* communicators_ = nullptr;
  std::optional<Error> reason_;
};

// Meetings of all ranks, so that one that does not come is noticed like in the steps: meeting and connecting
// as one collective, every later one by itself.
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

// How long ranks wait for one when they meet. Our own launcher watches over that itself and says more.
std::chrono::milliseconds meeting_limit(const Identity& identity, const Recipe& recipe) {
  constexpr std::chrono::hours for_ever(24 * 7);
  const std::int64_t seconds = recipe.integer("run.hang_limit");
  if (identity.how == "prun" || seconds == 0) return for_ever;
  return std::min<std::chrono::milliseconds>(for_ever, std::chrono::seconds(seconds));
}

class RankRun {
 public:
  RankRun(Session& session, const Recipe& recipe)
      : session_(session),
        meeting_limit_(meeting_limit(session.identity(), recipe)),
        all_ranks_(session.flight(), session.identity().world),
        abort_(std::make_shared<AbortSwitch>()) {
    session_.rendezvous().on_failure([abort = abort_](const Error& why) { abort->pull(why); });
  }

  Membership membership() {
    Membership membership;
    membership.exchange = [this](std::string_view channel, std::span<const int> members,
                                 std::string_view mine) {
      return all_ranks_.meet(
          channel, [&] { return session_.rendezvous().all_gather(channel, members, mine, meeting_limit_); });
    };
    membership.probes = [this](const Assembly& assembly, Communicators* communicators) {
      all_ranks_.connected();
      if (!communicators) return std::vector<Probe*>{};
      probe_ = std::make_unique<FlightProbe>(session_.flight(), assembly, *communicators);
      abort_->set(communicators);
      return std::vector<Probe*>{probe_.get()};
    };
    membership.before_step = [this](std::int64_t step) { session_.flight().begin_step(step); };
    membership.disconnecting = [this] { abort_->set(nullptr); };
    return membership;
  }
  std::optional<Error> why_aborted() const { return abort_->reason(); }

 private:
  Session& session_;
  std::chrono::milliseconds meeting_limit_;
  AllRanks all_ranks_;
  std::shared_ptr<AbortSwitch> abort_;
  std::unique_ptr<FlightProbe> probe_;
};

}  // namespace

void check_world(const Identity& identity, const Recipe& recipe) {
  const std::int64_t world = mesh_of(recipe).world();
  if (identity.world == world) return;
  throw_error(ErrorCode::bad_input, identity.how, " started ", identity.world,
              identity.world == 1 ? " rank" : " ranks", ", the recipe's mesh has ", world, "; start ", world,
              " or change [mesh]");
}

int train_rank(const Assembly& assembly, PluginHost& plugins, const std::string& resume_command,
               Session& session) {
  RankRun run(session, assembly.recipe());
  try {
    return train(assembly, plugins, resume_command, run.membership());
  } catch (const Error& error) {
    const std::optional<Error> reason = run.why_aborted();
    if (error.code() != ErrorCode::comm_failed || !reason) throw;
    throw_error(ErrorCode::comm_failed, reason->what(), "; this rank ends because of that");
  }
}

}  // namespace prun
