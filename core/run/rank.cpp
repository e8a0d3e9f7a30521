#include "run/rank.hpp"

#include <mutex>

namespace prun {
namespace {

// "forward block.3 mb 1": a call in the words of the flight record.
std::string call_text(const Assembly& assembly, const Call& call) {
  const Plan& plan = assembly.plan();
  const PlannedFunction& function = plan.functions[static_cast<std::size_t>(call.function)];
  const Instance& instance = plan.instances[static_cast<std::size_t>(call.instance)];
  const SegmentData& segment = assembly.program().segment(instance.segment);
  std::string text = detail::concat(name_of(function.kind), ' ', segment.name);
  if (segment.repeat > 1) text += detail::concat('.', instance.layer);
  if (call.microbatch >= 0) text += detail::concat(" mb ", call.microbatch);
  return text;
}

// Writes down what each queue does.
class FlightProbe final : public Probe {
 public:
  FlightProbe(FlightRecorder& flight, const Assembly& assembly, const Communicators& communicators)
      : flight_(flight), first_(assembly.plan().calls.data()) {
    for (const Call& call : assembly.plan().calls) texts_.push_back(call_text(assembly, call));
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

 private:
  const std::string& text(const Call& call) const { return texts_[static_cast<std::size_t>(&call - first_)]; }

  FlightRecorder& flight_;
  const Call* first_;
  std::vector<std::string> texts_;
  std::vector<int> groups_;  // by queue
};

// The communicators as long as they live, for whoever has to abort them.
class AbortSwitch {
 public:
  void set(Communicators* communicators) {
    const std::scoped_lock lock(mutex_);
    communicators_ = communicators;
    if (pulled_ && communicators_) communicators_->abort();
  }
  void pull() {
    const std::scoped_lock lock(mutex_);
    pulled_ = true;
    if (communicators_) communicators_->abort();
  }

 private:
  std::mutex mutex_;
  Communicators* communicators_ = nullptr;
  bool pulled_ = false;
};

class RankRun {
 public:
  explicit RankRun(Session& session) : session_(session), abort_(std::make_shared<AbortSwitch>()) {
    session_.rendezvous().on_failure([abort = abort_](const Error&) { abort->pull(); });
  }

  Membership membership() {
    Membership membership;
    membership.exchange = [this](std::string_view channel, std::span<const int> members,
                                 std::string_view mine) {
      return session_.rendezvous().all_gather(channel, members, mine);
    };
    membership.probes = [this](const Assembly& assembly, Communicators* communicators) {
      if (!communicators) return std::vector<Probe*>{};
      probe_ = std::make_unique<FlightProbe>(session_.flight(), assembly, *communicators);
      abort_->set(communicators);
      return std::vector<Probe*>{probe_.get()};
    };
    membership.before_step = [this](std::int64_t step) { session_.flight().begin_step(step); };
    membership.disconnecting = [this] { abort_->set(nullptr); };
    return membership;
  }

 private:
  Session& session_;
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
  RankRun run(session);
  return train(assembly, plugins, resume_command, run.membership());
}

}  // namespace prun
