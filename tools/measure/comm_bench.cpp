#include "measure/comm_bench.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/json.hpp"
#include "execute/communicators.hpp"
#include "execute/device_memory.hpp"
#include "execute/rank_queues.hpp"
#include "ranks/rank_answers.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/host_limits.hpp"
#include "train/assemble/model_program.hpp"

namespace prun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr CommKind measured[] = {CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter,
                                 CommKind::broadcast,  CommKind::all_to_all, CommKind::send};
constexpr std::int64_t smallest = 1024;
constexpr int batches = 5;

// Returns a number of repeats that takes some milliseconds.
int repeats(std::int64_t bytes) {
  return static_cast<int>(std::clamp<std::int64_t>((4 << 20) / bytes, 1, 50));
}

template <class Body>
void each_size(std::int64_t largest, Body&& body) {
  for (std::int64_t bytes = smallest; bytes <= largest; bytes *= 4) body(bytes);
}

std::shared_ptr<DeviceInterface> device_of(const Recipe& recipe, PluginHost& plugins) {
  return plugins.create<DeviceInterface>("device", recipe.section("device"));
}

CommInfo info_of(CommInterface& comm) {
  CommInfo info;
  raise(comm.info(&info));
  return info;
}

class OwnedCommunicator {
 public:
  OwnedCommunicator(CommInterface& comm, Communicator communicator) : comm_(comm), handle_(communicator) {}
  ~OwnedCommunicator() {
    if (handle_) comm_.destroy(handle_);
  }
  OwnedCommunicator(const OwnedCommunicator&) = delete;
  OwnedCommunicator& operator=(const OwnedCommunicator&) = delete;

  Communicator handle() const { return handle_; }

 private:
  CommInterface& comm_;
  Communicator handle_;
};

// Is one rank's part: it has a communicator of all ranks and, if it is the first or the one that this sends
// to, one of these two, as a pipeline has it.
class BenchRank {
 public:
  // This is collective.
  BenchRank(const Recipe& recipe, PluginHost& plugins, int rank, const Exchange& exchange,
            std::int64_t largest, int second = 1)
      : largest_(largest),
        rank_(rank),
        second_(second),
        members_(mesh_of(recipe).ranks()),
        device_(device_of(recipe, plugins)),
        device_info_(info_of(*device_)),
        comm_(
            make_comm(recipe, device_info_, plugins, comm_of_axis(recipe, plugins, mesh_of(recipe).name(0)))),
        info_(info_of(*comm_)),
        memory_(*device_, Space::device, 2 * largest),
        queue_(*device_, "bench"),
        world_(*comm_, info_.splits ? communicator({"bench", members_, rank_}, exchange) : nullptr),
        all_{{*comm_, communicator({"bench all", members_, rank_, world_.handle()}, exchange)},
             members_.size(),
             {}},
        pair_{{*comm_, communicator({"bench pair", {0, second_}, rank_, world_.handle()}, exchange)}, 2, {}} {
  }

  // This is collective. It returns the seconds of one exchange, by kind, size and batch.
  std::vector<double> measure() {
    queue_.attach();
    std::vector<CommOp> among_all = {meeting()}, between_two;
    for (const CommKind kind : measured)
      each_size(largest_, [&](std::int64_t bytes) {
        (kind == CommKind::send ? between_two : among_all).push_back(operation(kind, bytes));
      });
    connect(all_, among_all);
    connect(pair_, between_two);
    std::vector<double> seconds;
    for (const CommKind kind : measured)
      each_size(largest_, [&](std::int64_t bytes) { time(kind, bytes, seconds); });
    return seconds;
  }
  // Any thread may call it.
  void abort() {
    for (const OwnedCommunicator* of : {&all_.communicator, &pair_.communicator, &world_})
      if (of->handle()) comm_->abort(of->handle());
  }

 private:
  // It has no communicator where this rank is none of its members.
  struct Line {
    OwnedCommunicator communicator;
    std::size_t members;
    std::optional<Staging> staging;
  };

  Communicator communicator(CommMembers of, const Exchange& exchange) {
    raise(device_->make_current());
    of.groups = 2;  // counts all, and the pair
    const bool takes_part = std::find(of.members.begin(), of.members.end(), rank_) != of.members.end();
    return takes_part || info_.splits ? make_communicator(*comm_, of, exchange) : nullptr;
  }

  void connect(Line& line, const std::vector<CommOp>& ops) {
    if (!line.communicator.handle()) return;
    QueueComm comm{comm_.get(), line.communicator.handle(), info_.enqueues,
                   static_cast<std::int64_t>(line.members), is_staged(device_info_, info_)};
    if (!comm.staged) return attached_.attach(comm, memory_.bytes(), ops, queue_.stream());
    line.staging.emplace(*device_, "bench", ops, comm.members);
    attached_.attach(comm, line.staging->memory(), line.staging->operations(ops), nullptr);
  }

  // All begin together after this exchange.
  CommOp meeting() const {
    CommOp op;
    op.kind = CommKind::all_reduce;
    op.in = op.out = memory_.data();
    op.count = 1;
    return op;
  }

  // `bytes` are those of the larger side. An exchange between two goes from the first to the second.
  CommOp operation(CommKind kind, std::int64_t bytes) const {
    CommOp op;
    op.kind = kind == CommKind::send && rank_ == second_ ? CommKind::recv : kind;
    op.in = memory_.data();
    op.out = memory_.data() + largest_;
    op.peer = kind == CommKind::send && rank_ == 0 ? 1 : 0;
    op.count = bytes / size_of(op.dtype);
    const bool of_parts =
        kind == CommKind::all_gather || kind == CommKind::reduce_scatter || kind == CommKind::all_to_all;
    if (of_parts) op.count /= static_cast<std::int64_t>(members_.size());
    return op;
  }

  void time(CommKind kind, std::int64_t bytes, std::vector<double>& seconds) {
    Line& line = kind == CommKind::send ? pair_ : all_;
    const CommOp op = operation(kind, bytes);
    perform(line, op, 1);
    for (int batch = 0; batch < batches; ++batch) {
      perform(all_, meeting(), 1);
      const Clock::time_point begin = Clock::now();
      perform(line, op, repeats(bytes));
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / repeats(bytes));
    }
  }

  void perform(Line& line, const CommOp& op, int times) {
    if (!line.communicator.handle()) return;
    for (int i = 0; i < times; ++i)
      if (info_.enqueues)
        raise(comm_->start(line.communicator.handle(), &op, 1, queue_.stream()));
      else
        exchange(line, op);
    if (info_.enqueues) queue_.await([&] { raise(comm_->check(line.communicator.handle())); });
  }

  void exchange(Line& line, const CommOp& op) {
    const auto wire = [&](const CommOp& here) {
      const Status status = comm_->start(line.communicator.handle(), &here, 1, nullptr);
      return status.ok() ? comm_->finish(line.communicator.handle()) : status;
    };
    raise(line.staging ? line.staging->exchange(op, wire) : wire(op));
  }

  const std::int64_t largest_;
  const int rank_, second_;
  const std::vector<int> members_;
  const std::shared_ptr<DeviceInterface> device_;
  const DeviceInfo device_info_;
  const std::shared_ptr<CommInterface> comm_;
  const CommInfo info_;
  DeviceMemory memory_;  // holds operands, and behind them results
  SideQueue queue_;
  OwnedCommunicator world_;  // is used where the plugin splits
  Line all_, pair_;
  AttachedMemory attached_;
};

// Runs all ranks as threads, each with plugins of its own, as a process would have them. Returns seconds by
// rank, as they measure them.
std::vector<std::vector<double>> measure_threads(const Recipe& recipe, const std::vector<SearchPlace>& places,
                                                 std::int64_t largest) {
  const auto world = static_cast<int>(mesh_of(recipe).world());
  std::vector<std::vector<double>> seconds(static_cast<std::size_t>(world));
  RankThreads<BenchRank> ranks;
  ranks.run(world, [&](int rank, const Exchange& exchange) {
    PluginHost plugins(places);
    plugins.set_local({rank, world});
    BenchRank bench(recipe, plugins, rank, exchange, largest);
    ranks.until_aborted(bench, [&] { seconds[static_cast<std::size_t>(rank)] = bench.measure(); });
  });
  return seconds;
}

std::vector<double> numbers_of(const std::string& answer) {
  std::vector<double> numbers;
  const JsonValue all = parse_json(answer, "a rank's seconds");
  for (const JsonValue& number : all.as_array()) numbers.push_back(number.as_double());
  return numbers;
}

// The slowest member's time counts; of the batches, the lower quartile: other programs only ever add time.
CostTable table_of(const std::vector<std::vector<double>>& seconds, const std::string& device,
                   std::int64_t largest, bool between_hosts = false) {
  CostTable table;
  table.machine = this_machine();
  std::size_t at = 0;
  for (const CommKind kind : measured) {
    const std::int64_t members = kind == CommKind::send ? 2 : static_cast<std::int64_t>(seconds.size());
    ExchangeCurve& curve = table.exchanges[{kind, members, device, between_hosts}];
    each_size(largest, [&](std::int64_t bytes) {
      double times[batches] = {};
      for (double& time : times) {
        for (const std::vector<double>& own : seconds) time = std::max(time, own.at(at));
        ++at;
      }
      std::nth_element(times, times + batches / 4, times + batches);
      curve.points.push_back({bytes, times[batches / 4]});
    });
  }
  return table;
}

}  // namespace

std::string memory_of_exchanges(const Recipe& recipe, PluginHost& plugins) {
  const auto device = device_of(recipe, plugins);
  const DeviceInfo info = info_of(*device);  // its texts are the device's
  return std::string(info.host_memory ? host_exchanges : info.name.view());
}

Recipe recipe_of_ranks(std::int64_t ranks, PluginHost& plugins) {
  const std::string text = std::string(smallest_recipe) + ranks_of_smallest;
  const std::string count = std::to_string(ranks);
  const std::vector<std::string> sets = {"mesh.dp=" + count, "batch.global=" + count};
  return Recipe::parse(text, "a recipe of nothing but ranks", sets, plugins.catalog());
}

CostTable bench_comm(const Recipe& recipe, const std::vector<SearchPlace>& places,
                     const std::vector<std::string>& command, std::int64_t largest) {
  PRUN_CHECK(mesh_of(recipe).world() >= 2, "an exchange of ", mesh_of(recipe).world(), " ranks");
  PluginHost plugins(places);
  const std::string memory = memory_of_exchanges(recipe, plugins);
  const bool threads = command.empty() || !ranks_are_processes(recipe, plugins);
  if (threads) make_room_for_threads(Assembly(recipe, plugins), plugins);
  if (threads) return table_of(measure_threads(recipe, places, largest), memory, largest);
  PRUN_CHECK(largest == largest_exchange, "processes measure up to ", largest_exchange, " bytes");
  std::vector<std::vector<double>> seconds;
  for (const std::string& answer : ask_processes(recipe, plugins, command))
    seconds.push_back(numbers_of(answer));
  return table_of(seconds, memory, largest_exchange);
}

namespace {

// Returns what a process measures that is one of the ranks. Where these are on several hosts, the first rank
// of the second host is sent to.
std::string seconds_of(const Recipe& recipe, const Member& member) {
  const bool between_hosts = member.place.ranks < mesh_of(recipe).world();
  BenchRank bench(recipe, member.plugins, member.rank, member.membership.exchange, largest_exchange,
                  between_hosts ? member.place.ranks : 1);
  JsonWriter json;
  json.begin_array();
  for (const double seconds : bench.measure()) json.value(seconds);
  return json.end_array().take();
}

}  // namespace

int answer_bench_comm(const Recipe& recipe, const std::vector<SearchPlace>& places) {
  return answer_as_member(recipe, places, [&](const Member& member) { return seconds_of(recipe, member); });
}

int bench_comm_between(const Recipe& recipe, const std::vector<SearchPlace>& places,
                       const std::function<void(const CostTable& table)>& take) {
  PluginHost plugins(places);
  const std::string memory = memory_of_exchanges(recipe, plugins);
  const bool between_hosts = !launched_rank()->one_host();
  return answer_each_other(
      recipe, places, [&](const Member& member) { return seconds_of(recipe, member); },
      [&](const std::vector<std::string>& answers) {
        std::vector<std::vector<double>> seconds;
        for (const std::string& answer : answers) seconds.push_back(numbers_of(answer));
        take(table_of(seconds, memory, largest_exchange, between_hosts));
      });
}

double bus_share(CommKind kind, std::int64_t members) {
  const auto n = static_cast<double>(members);
  switch (kind) {
    case CommKind::all_reduce: return 2 * (n - 1) / n;
    case CommKind::all_gather:
    case CommKind::reduce_scatter:
    case CommKind::all_to_all: return (n - 1) / n;
    case CommKind::broadcast:
    case CommKind::send:
    case CommKind::recv:
    case CommKind::barrier: return 1;
  }
  return 1;
}

}  // namespace prun
