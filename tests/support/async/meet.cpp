// Implements comm plugins for ranks that are threads of one process: every exchange is a meeting, whose last
// comer makes it for all, in the order of the ranks. `meet` holds its caller; `meet-async` only enqueues, on
// a stream of the device cpu-async.
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "prun/plugin.hpp"
#include "stream.hpp"

#ifndef PRUN_MEET_ENQUEUES
#define PRUN_MEET_ENQUEUES false
#endif

namespace prun::async {
namespace {

// Is one member's part of an exchange.
struct Part {
  CommOp op;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
};

bool is_between_two(const CommOp& op) { return op.kind == CommKind::send || op.kind == CommKind::recv; }

template <class T>
void reduce_to(std::vector<T>& sum, const std::vector<const T*>& parts, Reduction reduction) {
  for (std::size_t i = 0; i < sum.size(); ++i) {
    double total = static_cast<double>(static_cast<float>(0)) + double(parts[0][i]);
    for (std::size_t p = 1; p < parts.size(); ++p)
      total =
          reduction == Reduction::max ? std::max(total, double(parts[p][i])) : total + double(parts[p][i]);
    sum[i] = T(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(total));
  }
}

class Exchange {
 public:
  explicit Exchange(std::vector<Part> parts) : parts_(std::move(parts)), op_(parts_.front().op) {}

  void run() {
    switch (op_.kind) {
      case CommKind::all_reduce: return reduce(false);
      case CommKind::reduce_scatter: return reduce(true);
      case CommKind::all_gather: return gather();
      case CommKind::send:
      case CommKind::recv: return pass_on();
      case CommKind::barrier: return compare();
      case CommKind::broadcast: return spread();
      case CommKind::all_to_all: return swap();
    }
  }

 private:
  std::size_t bytes(std::int64_t count) const { return static_cast<std::size_t>(count * size_of(op_.dtype)); }

  void reduce(bool scatter) {
    if (op_.dtype == DType::f64) return reduce_as<double>(scatter);
    if (op_.dtype == DType::f32) return reduce_as<float>(scatter);
    if (op_.dtype == DType::f16) return reduce_as<f16>(scatter);
    reduce_as<bf16>(scatter);
  }
  template <class T>
  void reduce_as(bool scatter) {
    const auto size = static_cast<std::int64_t>(parts_.size());
    std::vector<T> sum(static_cast<std::size_t>(scatter ? op_.count * size : op_.count));
    std::vector<const T*> list;
    for (const Part& part : parts_) list.push_back(reinterpret_cast<const T*>(part.in));
    reduce_to(sum, list, op_.reduction);
    for (std::size_t p = 0; p < parts_.size(); ++p)
      std::memcpy(parts_[p].out, sum.data() + (scatter ? static_cast<std::size_t>(op_.count) * p : 0),
                  bytes(op_.count));
  }
  void gather() {
    std::vector<std::byte> all;
    for (const Part& part : parts_) all.insert(all.end(), part.in, part.in + bytes(op_.count));
    for (const Part& part : parts_) std::memcpy(part.out, all.data(), all.size());
  }
  void spread() {
    const Part& root = parts_[static_cast<std::size_t>(op_.peer)];
    for (const Part& part : parts_)
      if (&part != &root) std::memcpy(part.out, root.out, bytes(op_.count));
  }
  void swap() {
    const std::size_t block = bytes(op_.count);
    for (std::size_t to = 0; to < parts_.size(); ++to)
      for (std::size_t from = 0; from < parts_.size(); ++from)
        std::memcpy(parts_[to].out + from * block, parts_[from].in + to * block, block);
  }
  // Checks that members of a collective say the same number.
  void compare() const {
    for (const Part& part : parts_)
      PRUN_CHECK(part.op.count == op_.count, "members say ", op_.count, " and ", part.op.count);
  }
  // Passes on where a group has two members: one sends, the other receives.
  void pass_on() {
    const bool first = parts_[0].op.kind == CommKind::send;
    std::memcpy(parts_[first ? 1 : 0].out, parts_[first ? 0 : 1].in, bytes(op_.count));
  }

  std::vector<Part> parts_;
  CommOp op_;
};

// Is a group's meeting place, shared by its members.
class Place {
 public:
  explicit Place(std::size_t size) : parts_(size) {}

  void meet(std::size_t member, const Part& part) {
    std::unique_lock lock(mutex_);
    // A member that waited here may have left since, and its memory with it.
    if (given_up_) throw_error(ErrorCode::comm_failed, "meet: the communicator was aborted");
    const std::uint64_t round = round_;
    parts_[member] = part;
    if (++here_ == parts_.size()) {
      Exchange(parts_).run();
      here_ = 0;
      ++round_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return given_up_ || round_ != round; });
    if (round_ == round) throw_error(ErrorCode::comm_failed, "meet: the communicator was aborted");
  }
  // Hands on what one of several members sends to another, in the order between these two. Who sends goes on.
  void pass_on(std::size_t member, const Part& part) {
    const auto size = static_cast<std::size_t>(part.op.count * size_of(part.op.dtype));
    const auto peer = static_cast<std::size_t>(part.op.peer);
    std::unique_lock lock(mutex_);
    if (part.op.kind == CommKind::send) {
      under_way_[{member, peer}].emplace_back(part.in, part.in + size);
      return changed_.notify_all();
    }
    std::deque<std::vector<std::byte>>& sent = under_way_[{peer, member}];
    changed_.wait(lock, [&] { return given_up_ || !sent.empty(); });
    if (given_up_) throw_error(ErrorCode::comm_failed, "meet: the communicator was aborted");
    PRUN_CHECK(sent.front().size() == size, "a member sends ", sent.front().size(), " bytes, of which ", size,
               " are received");
    std::memcpy(part.out, sent.front().data(), size);
    sent.pop_front();
  }
  // Returns the place of a group of that color among those that all members here make at the same time, or
  // null for a member that is in no group.
  std::shared_ptr<Place> split(std::size_t number, std::string_view name, std::int32_t color,
                               std::size_t size) {
    std::unique_lock lock(mutex_);
    if (given_up_) throw_error(ErrorCode::comm_failed, "meet: the split was aborted");
    Split& split = splits_[number];
    if (split.here == 0) split.name = name.substr(0, name.find('['));
    PRUN_CHECK(name.substr(0, name.find('[')) == split.name, "split for ", name, " meets ", split.name);
    std::shared_ptr<Place> made;
    if (color >= 0) made = split.made[color];
    if (color >= 0 && !made) made = split.made[color] = std::make_shared<Place>(size);
    ++split.here;
    changed_.notify_all();
    changed_.wait(lock, [&] { return given_up_ || split.here == parts_.size(); });
    if (split.here != parts_.size()) throw_error(ErrorCode::comm_failed, "meet: the split was aborted");
    return made;
  }
  void give_up() {
    const std::scoped_lock lock(mutex_);
    given_up_ = true;
    changed_.notify_all();
  }

 private:
  struct Split {
    std::string name;
    std::size_t here = 0;
    std::map<std::int32_t, std::shared_ptr<Place>> made;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Part> parts_;
  std::map<std::size_t, Split> splits_;
  // Holds what is sent and not received yet, by sender and receiver.
  std::map<std::pair<std::size_t, std::size_t>, std::deque<std::vector<std::byte>>> under_way_;
  std::size_t here_ = 0;
  std::uint64_t round_ = 0;
  bool given_up_ = false;
};

// Lets a rank's pieces of operations begin in the order in which they were started, a limited number at a
// time.
class Gate {
 public:
  explicit Gate(std::int64_t most) : most_(most) {}

  void add_communicator() { ++communicators_; }
  std::int64_t next() { return started_++; }
  void enter(std::int64_t number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return given_up_ || most_ == 0 || communicators_ <= most_ || (begun_ == number && inside_ < most_);
    });
    ++begun_;
    ++inside_;
    changed_.notify_all();
  }
  void leave() {
    const std::scoped_lock lock(mutex_);
    --inside_;
    changed_.notify_all();
  }
  void give_up() {
    const std::scoped_lock lock(mutex_);
    given_up_ = true;
    changed_.notify_all();
  }

 private:
  const std::int64_t most_;
  std::atomic<std::int64_t> communicators_ = 0, started_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t begun_ = 0, inside_ = 0;
  bool given_up_ = false;
};

struct Member {
  std::shared_ptr<Place> place;
  std::size_t rank = 0, size = 1;
  std::size_t splits = 0;  // counts splits made of it
  std::vector<std::span<std::byte>> memory;
  std::set<std::tuple<CommKind, std::int32_t, std::int64_t>> connected;
  CommCounters counters;

  // Either all members come, or none goes on.
  void meet(std::int64_t number) {
    CommOp barrier;
    barrier.count = number;
    place->meet(rank, {barrier, nullptr, nullptr});
  }
  // Checks what the core promises of every operation.
  void check(const CommOp& op) const {
    PRUN_CHECK(connected.count({op.kind, op.peer, op.count}), name_of(op.kind), " of ", op.count,
               " that connect() was not told of");
    for (const void* at : {op.in, const_cast<const void*>(op.out)}) {
      const auto* byte = static_cast<const std::byte*>(at);
      const bool known = std::any_of(memory.begin(), memory.end(), [&](std::span<std::byte> attached) {
        return byte >= attached.data() && byte < attached.data() + attached.size();
      });
      PRUN_CHECK(!at || known, name_of(op.kind), " in memory that was not attached");
    }
  }
};

class Meet final : public Comm {
 public:
  explicit Meet(const Options& options)
      : resident_(PRUN_MEET_ENQUEUES ? options.integer("resident") : 0),
        silent_(options.flag("silent")),
        splits_(options.flag("split")),
        device_bytes_(options.integer("device_bytes")),
        gate_(resident_) {}

  CommInfo info() override {
    CommInfo info;
    info.name = "meet";
    info.host_memory = true;
    info.device_memory = PRUN_MEET_ENQUEUES;
    info.enqueues = PRUN_MEET_ENQUEUES;
    info.splits = splits_;
    info.resident = silent_ ? 0 : resident_;
    info.process_device_bytes = 2 * device_bytes_;
    info.communicator_device_bytes = device_bytes_;
    return info;
  }

  // The first member makes the place and hands it on: all are in one process.
  Communicator create(const CommGroup& group) override {
    auto member = std::make_unique<Member>();
    if (group.parent) {
      Member& parent = of(group.parent);
      member->place = parent.place->split(parent.splits++, group.name.view(), group.color,
                                          static_cast<std::size_t>(group.size));
      if (!member->place) return nullptr;
    }
    if (group.parent || !splits_) {
      gate_.add_communicator();
      PRUN_CHECK(++groups_ <= group.groups, "told of fewer groups than there are");
    }
    member->rank = static_cast<std::size_t>(group.rank);
    member->size = static_cast<std::size_t>(group.size);
    if (group.parent) return member.release();
    PRUN_CHECK(group.color < 0, "a group of no parent has a color");
    std::shared_ptr<Place> made;
    if (group.rank == 0) made = std::make_shared<Place>(member->size);
    std::shared_ptr<Place>* mine = &made;
    std::vector<std::shared_ptr<Place>*> all(member->size);
    raise(group.exchange->all_gather(group.exchange->context, &mine, sizeof mine, all.data()));
    member->place = *all.front();
    std::vector<std::shared_ptr<Place>*> again(member->size);  // the first one's stays until all have it
    raise(group.exchange->all_gather(group.exchange->context, &mine, sizeof mine, again.data()));
    return member.release();
  }
  void destroy(Communicator communicator) override { delete &of(communicator); }

  void attach_memory(Communicator communicator, void* base, std::int64_t bytes) override {
    of(communicator).memory.emplace_back(static_cast<std::byte*>(base), static_cast<std::size_t>(bytes));
    of(communicator).meet(0);
  }
  void detach_memory(Communicator communicator) override { of(communicator).memory.clear(); }
  void connect(Communicator communicator, const CommOp* ops, std::int64_t count, void*) override {
    std::int64_t of_all = 0;  // counts operations that all members do
    for (std::int64_t i = 0; i < count; ++i) {
      of(communicator).connected.emplace(ops[i].kind, ops[i].peer, ops[i].count);
      of_all += !is_between_two(ops[i]);
    }
    of(communicator).meet(of_all);
  }

  void start(Communicator communicator, const CommOp* ops, std::int64_t count, void* stream) override {
    Member& member = of(communicator);
    const std::vector<CommOp> list(ops, ops + count);
    for (const CommOp& op : list) member.check(op);
    if (!PRUN_MEET_ENQUEUES) return run(member, list, [](const void* at) { return const_cast<void*>(at); });
    auto* queue = static_cast<Stream*>(stream);
    queue->enqueue([&member, list, queue, number = gate_.next(), this] {
      gate_.enter(number);
      run(member, list, [&](const void* at) { return queue->real(at); });
      gate_.leave();
    });
  }
  void finish(Communicator) override {
    if (PRUN_MEET_ENQUEUES) throw_error(ErrorCode::internal, "finish() of a comm plugin that enqueues");
  }
  void abort(Communicator communicator) override {
    gate_.give_up();
    of(communicator).place->give_up();
  }
  CommCounters counters(Communicator communicator) override { return of(communicator).counters; }
  CommNeeds needs(const CommOp&, std::int32_t, std::int32_t) override { return {}; }

 private:
  static Member& of(Communicator communicator) { return *static_cast<Member*>(communicator); }

  template <class Real>
  static void run(Member& member, const std::vector<CommOp>& ops, Real&& real) {
    for (const CommOp& op : ops) {
      const Part part{op, static_cast<const std::byte*>(op.in ? real(op.in) : nullptr),
                      static_cast<std::byte*>(op.out ? real(op.out) : nullptr)};
      if (is_between_two(op) && member.size > 2)
        member.place->pass_on(member.rank, part);
      else
        member.place->meet(member.rank, part);
    }
  }

  std::int32_t groups_ = 0;  // counts those that this rank is in
  const std::int64_t resident_;
  const bool silent_, splits_;
  const std::int64_t device_bytes_;
  Gate gate_;
};

}  // namespace
}  // namespace prun::async

#define PRUN_MEET_OPTIONS                                                                   \
  "silent | bool | false | | Does not say how many operations it has under way at a time\n" \
  "split | bool | false | | Makes its groups from one communicator of all ranks\n"          \
  "device_bytes | int | 0 | 0.. | Memory of the device that a communicator is said to take\n"

#ifndef PRUN_MEET_NAME
#define PRUN_MEET_NAME "meet-async"
#endif

#if PRUN_MEET_ENQUEUES
PRUN_PLUGIN(comm, prun::async::Meet, PRUN_MEET_NAME, "0.1.0", "Threads of one process meet on streams", "",
            "resident | int | 0 | 0.. | Pieces of operations that a rank has under way at a time; 0: any "
            "number\n" PRUN_MEET_OPTIONS);
#else
PRUN_PLUGIN(comm, prun::async::Meet, "meet", "0.1.0", "Threads of one process meet",
            "shared_folder=PRUN_MEET_FOLDER; log=PRUN_MEET_LOG", PRUN_MEET_OPTIONS);
#endif
