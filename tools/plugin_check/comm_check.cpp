#include "plugin_check/comm_check.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread.hpp"
#include "execute/communicators.hpp"
#include "plugin_check/kernel_trial.hpp"
#include "ranks/rank_answers.hpp"

namespace prun {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType types[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                           DType::i32, DType::i64, DType::u8,   DType::u16};
constexpr std::int64_t counts[] = {0, 1, 37, 4099};
constexpr CommKind kinds[] = {CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter,
                              CommKind::broadcast,  CommKind::all_to_all, CommKind::send};

bool reduces(CommKind kind) { return kind == CommKind::all_reduce || kind == CommKind::reduce_scatter; }
bool has_parts_in(CommKind kind) { return kind == CommKind::reduce_scatter || kind == CommKind::all_to_all; }
bool has_parts_out(CommKind kind) { return kind == CommKind::all_gather || kind == CommKind::all_to_all; }

// Returns small whole numbers: every sum of them is exact in every type.
double number_of(std::int64_t rank, std::int64_t index) {
  return static_cast<double>((rank * 5 + index * 3 + index / 7) % 13);
}

struct Case {
  CommKind kind = CommKind::all_reduce;
  Reduction reduction = Reduction::sum;
  DType type = DType::f32;
  std::int64_t count = 0;
  bool in_place = false;

  std::string text() const {
    return detail::concat(name_of(kind),
                          reduces(kind) ? reduction == Reduction::sum ? " (sum)" : " (max)" : "", " of ",
                          count, " x ", name_of(type), in_place ? " in place" : "");
  }
};

// Returns all that a plan may use: sums and maxima of floating-point types, other exchanges of all types.
std::vector<Case> cases(int size) {
  std::vector<Case> all;
  for (const CommKind kind : kinds)
    for (const Reduction reduction : {Reduction::sum, Reduction::max})
      for (const DType type : types)
        for (const std::int64_t count : counts)
          for (const bool in_place : {false, true}) {
            if (reduces(kind) ? !is_real(type) : reduction == Reduction::max) continue;
            if (in_place && !reduces(kind) && kind != CommKind::all_gather) continue;
            if (kind == CommKind::send && size != 2) continue;
            all.push_back({kind, reduction, type, count, in_place});
          }
  return all;
}

// Holds one rank's part of a case, in memory that is filled before, and the numbers that must be there
// afterwards.
class Placed {
 public:
  Placed(const Case& one, int rank, int size, std::span<std::byte> memory)
      : case_(one), rank_(rank), size_(size), memory_(memory) {
    const std::int64_t parts_in = has_parts_in(one.kind) ? size : 1,
                       parts_out = has_parts_out(one.kind) ? size : 1;
    in_ = memory_.data() + fence;
    out_ = in_ + bytes(parts_in * one.count) + fence;
    in_count_ = parts_in * one.count, out_count_ = parts_out * one.count;
    const std::int64_t own = rank * one.count;
    if (one.in_place && one.kind == CommKind::all_reduce) out_ = in_;
    if (one.in_place && one.kind == CommKind::all_gather) in_ = out_ + bytes(own);
    if (one.in_place && one.kind == CommKind::reduce_scatter) out_ = in_ + bytes(own);
  }

  CommOp op() const {
    CommOp op;
    op.kind = case_.kind == CommKind::send && rank_ == 1 ? CommKind::recv : case_.kind;
    op.reduction = case_.reduction;
    op.dtype = case_.type;
    op.in = in_;
    op.out = out_;
    op.count = case_.count;
    if (case_.kind == CommKind::broadcast) op.peer = root();
    if (case_.kind == CommKind::send) op.peer = 1 - rank_;
    return op;
  }

  void fill() {
    std::fill(memory_.begin(), memory_.end(), std::byte{0x5a});
    if (gives()) write(in_, in_count_, [&](std::int64_t i) { return number_of(rank_, i); });
    if (case_.kind == CommKind::broadcast && rank_ == root())
      write(out_, out_count_, [&](std::int64_t i) { return number_of(rank_, i); });
    want_.assign(memory_.begin(), memory_.end());
    if (takes())
      write(want_.data() + (out_ - memory_.data()), out_count_, [&](std::int64_t i) { return result(i); });
  }

  void check() const {
    const bool spent = case_.in_place && case_.kind == CommKind::reduce_scatter;
    const std::byte* const spent_end = in_ + bytes(in_count_);
    for (std::size_t i = 0; i < want_.size(); ++i) {
      const std::byte* const at = memory_.data() + i;
      const bool is_result = at >= out_ && at < out_ + bytes(out_count_);
      if (*at == want_[i] || (spent && at >= in_ && at < spent_end && !is_result)) continue;
      const char* const what = is_result && takes()          ? "gives a wrong result"
                               : at >= in_ && at < spent_end ? "changes what it reads"
                                                             : "writes beside its result";
      throw_error(ErrorCode::bad_input, case_.text(), " among ", size_, " ranks: ", what, " on rank ", rank_,
                  is_result ? detail::concat(", element ", (at - out_) / size_of(case_.type)) : "");
    }
  }

 private:
  static constexpr std::int64_t fence = 256;

  std::int64_t bytes(std::int64_t count) const { return count * size_of(case_.type); }
  int root() const { return size_ / 2; }
  bool gives() const {
    return case_.kind != CommKind::broadcast && !(case_.kind == CommKind::send && rank_ == 1);
  }
  bool takes() const { return !(case_.kind == CommKind::send && rank_ == 0); }

  double result(std::int64_t i) const {
    const std::int64_t count = case_.count;
    switch (case_.kind) {
      case CommKind::all_reduce: return reduced(i);
      case CommKind::reduce_scatter: return reduced(rank_ * count + i);
      case CommKind::all_gather: return number_of(i / count, i % count);
      case CommKind::all_to_all: return number_of(i / count, rank_ * count + i % count);
      case CommKind::broadcast: return number_of(root(), i);
      default: return number_of(0, i);
    }
  }
  double reduced(std::int64_t i) const {
    double all = number_of(0, i);
    for (int rank = 1; rank < size_; ++rank)
      all = case_.reduction == Reduction::sum ? all + number_of(rank, i) : std::max(all, number_of(rank, i));
    return all;
  }

  template <class NumberAt>
  void write(std::byte* to, std::int64_t count, NumberAt&& number_at) const {
    TrialOperand numbers;
    numbers.shape.dtype = case_.type;
    numbers.bytes.resize(static_cast<std::size_t>(bytes(count)));
    for (std::int64_t i = 0; i < count; ++i) numbers.set(static_cast<std::size_t>(i), number_at(i));
    std::copy(numbers.bytes.begin(), numbers.bytes.end(), to);
  }

  const Case case_;
  const int rank_, size_;
  std::span<std::byte> memory_;
  std::byte *in_ = nullptr, *out_ = nullptr;
  std::int64_t in_count_ = 0, out_count_ = 0;
  Bytes want_;
};

// is enough for any case of three ranks
constexpr std::size_t memory_bytes = 3 * 2 * 4099 * 8 + 4096;

// Is one rank of a group of all, with an object of the plugin's own, as a process would have it.
class TrialRank {
 public:
  // This is collective.
  TrialRank(const TriedPlugin& plugin, int rank, int size, const Exchange& exchange)
      : rank_(rank), size_(size), object_(plugin.create(plugin.options)), memory_(memory_bytes) {
    CommInfo info;
    raise(comm().info(&info));
    std::vector<int> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    if (info.splits) world_ = owned(make_communicator(comm(), {"trial", all, rank}, exchange));
    group_ = owned(make_communicator(comm(), {"trial all", all, rank, world_.get()}, exchange));
  }

  // This is collective.
  void connect(std::span<const CommOp> ops) {
    attached_.attach({&comm(), group_.get(), false, size_, false}, memory_, ops, nullptr);
  }
  Status exchange(std::span<const CommOp> ops) {
    const Status status =
        comm().start(group_.get(), ops.data(), static_cast<std::int64_t>(ops.size()), nullptr);
    return status.ok() ? comm().finish(group_.get()) : status;
  }
  std::uint64_t bytes_sent() {
    CommCounters counters;
    raise(comm().counters(group_.get(), &counters));
    return counters.bytes_sent;
  }
  std::uint64_t bytes_to_send(const CommOp& op) {
    CommNeeds needs;
    raise(comm().needs(op, rank_, size_, &needs));
    return needs.bytes_sent;
  }
  // Any thread may call it.
  void abort() {
    for (const auto& one : {group_, world_})
      if (one) comm().abort(one.get());
  }

  std::span<std::byte> memory() { return memory_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

 private:
  CommInterface& comm() const { return *static_cast<CommInterface*>(object_.get()); }
  std::shared_ptr<void> owned(Communicator communicator) {
    return {communicator, [this](Communicator made) { comm().destroy(made); }};
  }

  const int rank_, size_;
  const std::shared_ptr<void> object_;
  Bytes memory_;
  std::shared_ptr<void> world_, group_;  // are communicators
  AttachedMemory attached_;
};

// Runs body on one thread for each rank.
void run_ranks(const TriedPlugin& plugin, int size, const std::function<void(TrialRank&)>& body) {
  RankThreads<TrialRank> ranks;
  ranks.run(size, [&](int rank, const Exchange& exchange) {
    TrialRank own(plugin, rank, size, exchange);
    ranks.until_aborted(own, [&] { body(own); });
  });
}

void check_traffic(TrialRank& rank, std::span<const CommOp> ops, std::uint64_t sent,
                   const std::string& what) {
  std::uint64_t said = 0;
  for (const CommOp& op : ops) said += rank.bytes_to_send(op);
  if (sent != said)
    throw_error(ErrorCode::bad_input, what, " among ", rank.size(), " ranks: rank ", rank.rank(),
                " has sent ", sent, " bytes by counters(), and needs() says ", said);
}

void exchange_all(TrialRank& rank, const std::vector<Placed>& placed, const std::string& what) {
  std::vector<CommOp> ops;
  ops.reserve(placed.size());
  for (const Placed& one : placed) ops.push_back(one.op());
  const std::uint64_t before = rank.bytes_sent();
  if (const Status status = rank.exchange(ops); !status.ok())
    throw_error(status.code, what, " among ", rank.size(), " ranks: ", status.message);
  for (const Placed& one : placed) one.check();
  check_traffic(rank, ops, rank.bytes_sent() - before, what);
}

// These are begun by one start().
constexpr Case at_once[] = {{CommKind::all_reduce, Reduction::sum, DType::f32, 37, false},
                            {CommKind::all_gather, Reduction::sum, DType::bf16, 37, false},
                            {CommKind::broadcast, Reduction::sum, DType::i64, 37, false}};

std::vector<Placed> place_at_once(TrialRank& rank) {
  std::vector<Placed> placed;
  const std::size_t room = rank.memory().size() / std::size(at_once) / 8 * 8;
  for (std::size_t i = 0; i < std::size(at_once); ++i)
    placed.emplace_back(at_once[i], rank.rank(), rank.size(), rank.memory().subspan(i * room, room));
  return placed;
}

// Has each member send two messages of one size to the next one and receive those of the one before, by one
// start(): what is sent first is received first. They are listed by who sends, alike on all members, so that
// they may also be done one after the other.
class Around {
 public:
  explicit Around(TrialRank& rank) : rank_(rank), sent_(messages * count), received_(messages * count) {
    const std::span<std::byte> memory = rank.memory();
    in_ = memory.data(), out_ = memory.data() + memory.size() / 2 / 8 * 8;
    std::vector<CommOp> sends, receives;
    for (std::int64_t message = 0; message < messages; ++message) {
      const std::int64_t at = message * count * static_cast<std::int64_t>(sizeof(float));
      CommOp send, recv;
      send.kind = CommKind::send, recv.kind = CommKind::recv;
      send.count = recv.count = count;
      send.in = in_ + at, recv.out = out_ + at;
      send.peer = (rank.rank() + 1) % rank.size(), recv.peer = before();
      sends.push_back(send), receives.push_back(recv);
    }
    if (before() < rank.rank()) std::swap(sends, receives);
    ops_ = sends;
    ops_.insert(ops_.end(), receives.begin(), receives.end());
  }

  const std::vector<CommOp>& ops() const { return ops_; }

  void exchange() {
    for (std::size_t i = 0; i < sent_.size(); ++i) sent_[i] = number(rank_.rank(), i);
    std::memcpy(in_, sent_.data(), sent_.size() * sizeof(float));
    const std::uint64_t begin = rank_.bytes_sent();
    if (const Status status = rank_.exchange(ops_); !status.ok())
      throw_error(status.code, what, " among ", rank_.size(), " ranks: ", status.message);
    std::memcpy(received_.data(), out_, received_.size() * sizeof(float));
    for (std::size_t i = 0; i < received_.size(); ++i)
      if (received_[i] != number(before(), i))
        throw_error(ErrorCode::bad_input, what, " among ", rank_.size(),
                    " ranks: gives a wrong result on rank ", rank_.rank(), ", message ", i / count,
                    ", element ", i % count);
    check_traffic(rank_, ops_, rank_.bytes_sent() - begin, what);
  }

  static constexpr const char* what = "two of send and recv at once";

 private:
  static constexpr std::int64_t count = 37, messages = 2;

  std::int32_t before() const { return (rank_.rank() + rank_.size() - 1) % rank_.size(); }
  static float number(std::int32_t rank, std::size_t i) {
    return static_cast<float>(1000 * (i / count)) +
           static_cast<float>(number_of(rank, static_cast<std::int64_t>(i)));
  }

  TrialRank& rank_;
  std::byte *in_ = nullptr, *out_ = nullptr;
  std::vector<CommOp> ops_;
  std::vector<float> sent_, received_;
};

void exchange_cases(TrialRank& rank, const Doing& doing) {
  const std::vector<Case> all = cases(rank.size());
  CommOp barrier;
  std::vector<CommOp> ops = {barrier};
  for (const Case& one : all) ops.push_back(Placed(one, rank.rank(), rank.size(), rank.memory()).op());
  for (const Placed& one : place_at_once(rank)) ops.push_back(one.op());
  Around around(rank);
  ops.insert(ops.end(), around.ops().begin(), around.ops().end());
  rank.connect(ops);
  raise(rank.exchange({&barrier, 1}));
  for (const Case& one : all) {
    if (rank.rank() == 0) doing(detail::concat(one.text(), " among ", rank.size(), " ranks"));
    std::vector<Placed> placed = {{one, rank.rank(), rank.size(), rank.memory()}};
    placed.front().fill();
    exchange_all(rank, placed, one.text());
  }
  if (rank.rank() == 0) doing("three operations at once");
  std::vector<Placed> placed = place_at_once(rank);
  for (Placed& one : placed) one.fill();
  exchange_all(rank, placed, "three operations at once");
  if (rank.rank() == 0) doing(Around::what);
  around.exchange();
}

// Says why it cannot be tried as threads that exchange the host's memory; it is empty where it can.
std::string hindrance(const TriedPlugin& plugin) {
  CommInfo info;
  plugin.doing("info()");
  raise(static_cast<CommInterface*>(plugin.object)->info(&info));
  if (!info.host_memory && !info.device_memory)
    throw_error(ErrorCode::bad_input, "info() says that operations may lie in no memory at all");
  if (info.enqueues)
    return "not checked: it enqueues on the streams of a device; prun verify tries it with one";
  if (!info.host_memory)
    return "not checked: it takes no memory of the host; prun verify tries it with its device";
  return "";
}

}  // namespace

CheckFinding check_comm(const TriedPlugin& plugin) {
  if (const std::string why = hindrance(plugin); !why.empty()) return {why, false};
  std::size_t count = 0;
  for (const int size : {2, 3}) {
    plugin.doing(detail::concat("create() and connect() of ", size, " ranks"));
    run_ranks(plugin, size, [&](TrialRank& rank) { exchange_cases(rank, plugin.doing); });
    count += cases(size).size();
  }
  return {detail::concat(count, " exchanges of 2 and 3 ranks")};
}

CheckFinding check_comm_abort(const TriedPlugin& plugin) {
  if (const std::string why = hindrance(plugin); !why.empty()) return {why, false};
  constexpr auto until_it_waits = std::chrono::milliseconds(100);
  run_ranks(plugin, 2, [&](TrialRank& rank) {
    Placed placed({CommKind::all_reduce, Reduction::sum, DType::f32, 37, false}, rank.rank(), 2,
                  rank.memory());
    placed.fill();
    const CommOp op = placed.op();
    rank.connect({&op, 1});
    if (rank.rank() != 0) return rank.abort();
    plugin.doing("start() and finish() of a rank that waits for another, after abort()");
    const auto later = start_thread<std::jthread>("who aborts", [&] {
      std::this_thread::sleep_for(until_it_waits);
      rank.abort();
    });
    for (const char* const when : {"that waits for another", "that was aborted"})
      if (const Status status = rank.exchange({&op, 1}); status.code != ErrorCode::comm_failed)
        throw_error(ErrorCode::bad_input, "an exchange of a rank ", when,
                    ": abort() must make start() or finish() fail with ", "comm_failed, and it ",
                    status.ok() ? "succeeds" : status.message);
  });
  return {};
}

}  // namespace prun
