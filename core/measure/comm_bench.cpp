#include "measure/comm_bench.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <numeric>
#include <set>
#include <thread>

#include "execute/meetings.hpp"

namespace prun {
namespace {

using Clock = std::chrono::steady_clock;

constexpr CommKind measured[] = {CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter,
                                 CommKind::broadcast,  CommKind::all_to_all, CommKind::send};
constexpr std::int64_t smallest = 1024;
constexpr int batches = 5;

// As many as take some milliseconds.
int repeats(std::int64_t bytes) {
  return static_cast<int>(std::clamp<std::int64_t>((4 << 20) / bytes, 1, 50));
}

class CommBench {
 public:
  CommBench(const std::vector<SearchPlace>& places, const std::string& plugin, std::int64_t ranks,
            std::int64_t largest)
      : places_(places), plugin_(plugin), members_(static_cast<std::size_t>(ranks)), largest_(largest) {
    std::iota(members_.begin(), members_.end(), 0);
    seconds_.resize(members_.size());
  }

  CostTable run() {
    {
      std::vector<std::jthread> threads;
      for (int rank : members_) threads.emplace_back([this, rank] { run_rank(rank); });
    }
    if (error_) std::rethrow_exception(error_);
    return table();
  }

 private:
  // What a rank's thread needs. Its own comm object, as a process would have.
  struct Member {
    int rank = 0;
    std::shared_ptr<CommInterface> comm;
    Communicator communicator = nullptr;
    std::vector<std::byte> in, out;
  };

  void run_rank(int rank) {
    try {
      PluginHost plugins(places_);
      const PluginNote& note = plugins.note("comm", plugin_);
      const DefaultSection defaults(parse_schema(note.options, describe(note)));
      Member member{
          rank, plugins.create<CommInterface>("comm", plugin_, options_of(defaults)), nullptr, {}, {}};
      connect(member);
      enter(member);
      try {
        measure(member);
      } catch (...) {
        fail();
      }
      leave(member);
      raise(member.comm->destroy(member.communicator));
    } catch (...) {
      fail();
    }
  }

  void connect(Member& member) {
    struct Context {
      CommBench* bench;
      int rank;
    } context{this, member.rank};
    ExchangeApi api{};
    api.struct_size = sizeof api;
    api.context = &context;
    api.all_gather = [](void* opaque, const void* mine, std::uint64_t bytes, void* all) {
      return guard([&] {
        const auto& [bench, rank] = *static_cast<const Context*>(opaque);
        char* at = static_cast<char*>(all);
        const std::string_view own(static_cast<const char*>(mine), bytes);
        for (const std::string& text : bench->meetings_.all_gather("bench", bench->members_, rank, own))
          at = std::copy(text.begin(), text.end(), at);
      });
    };
    CommGroup group;
    group.name = "bench";
    group.rank = member.rank;
    group.size = static_cast<std::int32_t>(members_.size());
    group.exchange = &api;
    raise(member.comm->create(group, &member.communicator));
  }

  void measure(Member& member) {
    member.in.resize(static_cast<std::size_t>(largest_));
    member.out.resize(static_cast<std::size_t>(largest_));
    std::vector<double>& own = seconds_[static_cast<std::size_t>(member.rank)];
    for (CommKind kind : measured)
      for (std::int64_t bytes = smallest; bytes <= largest_; bytes *= 4) {
        const CommOp op = operation(member, kind, bytes);
        perform(member, op, 1);
        for (int batch = 0; batch < batches; ++batch) {
          CommOp barrier;
          perform(member, barrier, 1);
          const Clock::time_point begin = Clock::now();
          perform(member, op, repeats(bytes));
          own.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / repeats(bytes));
        }
      }
  }

  // `bytes` of the larger side. Between two: from the first to the second, the others have nothing to do.
  CommOp operation(Member& member, CommKind kind, std::int64_t bytes) const {
    CommOp op;
    op.kind = kind;
    op.dtype = DType::f32;
    op.in = member.in.data();
    op.out = member.out.data();
    op.peer = 0;
    op.count = bytes / size_of(op.dtype);
    const bool of_parts =
        kind == CommKind::all_gather || kind == CommKind::reduce_scatter || kind == CommKind::all_to_all;
    if (of_parts) op.count /= static_cast<std::int64_t>(members_.size());
    if (kind != CommKind::send) return op;
    op.peer = member.rank == 0 ? 1 : 0;
    if (member.rank == 1) op.kind = CommKind::recv;
    if (member.rank > 1) op.count = 0;
    return op;
  }

  static void perform(Member& member, const CommOp& op, int times) {
    if (op.kind == CommKind::send && op.count == 0) return;
    for (int i = 0; i < times; ++i) {
      raise(member.comm->start(member.communicator, &op, 1, nullptr));
      raise(member.comm->finish(member.communicator));
    }
  }

  // The slowest member's time counts; of the batches, the lower quartile: what else runs only ever adds.
  CostTable table() const {
    CostTable table;
    table.machine = this_machine();
    std::size_t at = 0;
    for (CommKind kind : measured) {
      const std::int64_t members = kind == CommKind::send ? 2 : static_cast<std::int64_t>(members_.size());
      ExchangeCurve& curve = table.exchanges[{kind, members}];
      for (std::int64_t bytes = smallest; bytes <= largest_; bytes *= 4) {
        double times[batches] = {};
        for (double& time : times) {
          for (const std::vector<double>& own : seconds_) time = std::max(time, own[at]);
          ++at;
        }
        std::nth_element(times, times + batches / 4, times + batches);
        curve.points.push_back({bytes, times[batches / 4]});
      }
    }
    return table;
  }

  void enter(Member& member) {
    const std::scoped_lock lock(mutex_);
    running_.insert(&member);
    if (error_) member.comm->abort(member.communicator);
  }
  void leave(Member& member) {
    const std::scoped_lock lock(mutex_);
    running_.erase(&member);
  }
  void fail() {
    const std::scoped_lock lock(mutex_);
    if (!error_) error_ = std::current_exception();
    meetings_.give_up();
    for (Member* member : running_) member->comm->abort(member->communicator);
  }

  const std::vector<SearchPlace>& places_;
  const std::string& plugin_;
  std::vector<int> members_;
  std::int64_t largest_;
  Meetings meetings_;
  std::vector<std::vector<double>> seconds_;  // by rank, then in the order of measuring
  std::mutex mutex_;
  std::set<Member*> running_;
  std::exception_ptr error_;
};

}  // namespace

CostTable bench_comm(const std::vector<SearchPlace>& places, const std::string& plugin, std::int64_t ranks,
                     std::int64_t largest) {
  PRUN_CHECK(ranks >= 2, "an exchange of ", ranks, " ranks");
  return CommBench(places, plugin, ranks, largest).run();
}

}  // namespace prun
