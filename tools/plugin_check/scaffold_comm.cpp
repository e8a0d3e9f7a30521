// Holds the template of a comm plugin, which works on any machine.
#include "plugin_check/scaffold.hpp"

namespace prun {

std::string_view scaffold_comm() {  // NOLINT(readability-function-size): it is a text
  return R"~(
// A comm plugin for the ranks of one host: every member sends straight to every other, through sockets. A
// start for your own.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "prun/plugin.hpp"

namespace {

using prun::CommKind;
using prun::CommOp;
using prun::DType;
using prun::ErrorCode;

// ---------------------------------------------------------------- sums

template <class T>
void reduce(void* to, const void* from, std::int64_t count, prun::Reduction reduction) {
  T* const sum = static_cast<T*>(to);
  const T* const more = static_cast<const T*>(from);
  for (std::int64_t i = 0; i < count; ++i)
    sum[i] = reduction == prun::Reduction::sum ? T(sum[i] + more[i]) : std::max(sum[i], more[i]);
}

// Halves are added as floats.
template <class T>
void reduce_halves(void* to, const void* from, std::int64_t count, prun::Reduction reduction) {
  auto* const sum = static_cast<T*>(to);
  const auto* const more = static_cast<const T*>(from);
  for (std::int64_t i = 0; i < count; ++i) {
    const float a = static_cast<float>(sum[i]), b = static_cast<float>(more[i]);
    sum[i] = T(reduction == prun::Reduction::sum ? a + b : std::max(a, b));
  }
}

void reduce(const CommOp& op, void* to, const void* from) {
  switch (op.dtype) {
    case DType::f64: return reduce<double>(to, from, op.count, op.reduction);
    case DType::f32: return reduce<float>(to, from, op.count, op.reduction);
    case DType::bf16: return reduce_halves<prun::bf16>(to, from, op.count, op.reduction);
    case DType::f16: return reduce_halves<prun::f16>(to, from, op.count, op.reduction);
    default: prun::throw_error(ErrorCode::unsupported, "no sums of ", prun::name_of(op.dtype));
  }
}

std::int64_t bytes_of(const CommOp& op) { return op.count * prun::size_of(op.dtype); }
bool reduces(CommKind kind) { return kind == CommKind::all_reduce || kind == CommKind::reduce_scatter; }

// ---------------------------------------------------------------- a member of a group

// Its socket to each other member, and what was started.
class Member {
 public:
  explicit Member(const prun::CommGroup& group)
      : name_(group.name.view()), rank_(group.rank), size_(group.size), peers_(group.size, -1) {
    const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0) fail("socket()");
    try {
      meet(listener, *group.exchange);
    } catch (...) {
      ::close(listener);
      close_all();
      throw;
    }
    ::close(listener);
  }
  ~Member() { close_all(); }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  prun::CommCounters counters;

  void prepare(const CommOp* ops, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i)
      if (reduces(ops[i].kind))
        scratch_.resize(std::max(scratch_.size(), static_cast<std::size_t>(bytes_of(ops[i]) * (size_ + 1))));
    started_.reserve(std::max(started_.capacity(), static_cast<std::size_t>(count)));
  }
  void start(const CommOp* ops, std::int64_t count) { started_.insert(started_.end(), ops, ops + count); }
  void finish() {
    for (const CommOp& op : started_) exchange(op);
    started_.clear();
  }
  // Whoever waits in poll() wakes up, here and at the other end.
  void abort() {
    aborted_ = true;
    for (const int peer : peers_)
      if (peer >= 0) ::shutdown(peer, SHUT_RDWR);
  }

 private:
  // ------------------------------------------------------------- how they meet

  // An address that the system chooses; a member connects to those before it, and names itself.
  void meet(int listener, const prun::ExchangeApi& api) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socklen_t length = sizeof(sa_family_t);
    if (::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0) fail("bind()");
    if (::listen(listener, size_) != 0) fail("listen()");
    length = sizeof address;
    if (::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) fail("getsockname()");
    std::vector<Address> all(static_cast<std::size_t>(size_));
    const Address mine{address, length};
    prun::raise(api.all_gather(api.context, &mine, sizeof mine, all.data()));
    for (std::int32_t before = 0; before < rank_; ++before) call(before, all[static_cast<std::size_t>(before)]);
    for (std::int32_t behind = rank_ + 1; behind < size_; ++behind) answer(listener);
  }

  struct Address {
    sockaddr_un name;
    socklen_t length;
  };

  void call(std::int32_t peer, const Address& address) {
    int& to = peers_[static_cast<std::size_t>(peer)];
    to = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (to < 0) fail("socket()");
    if (::connect(to, reinterpret_cast<const sockaddr*>(&address.name), address.length) != 0)
      fail("connect(), which ranks of one host can");
    if (::write(to, &rank_, sizeof rank_) != sizeof rank_) fail("write()");
  }

  void answer(int listener) {
    const int from = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    std::int32_t peer = -1;
    if (from < 0) fail("accept()");
    if (::read(from, &peer, sizeof peer) != sizeof peer || peer <= rank_ || peer >= size_) {
      ::close(from);
      fail("read() of a member's number");
    }
    peers_[static_cast<std::size_t>(peer)] = from;
  }

  void close_all() {
    for (const int peer : peers_)
      if (peer >= 0) ::close(peer);
  }

  // ------------------------------------------------------------- operations

  void exchange(const CommOp& op) {
    const std::int64_t bytes = bytes_of(op);
    const auto* const in = static_cast<const std::byte*>(op.in);
    auto* const out = static_cast<std::byte*>(op.out);
    ++counters.operations;
    switch (op.kind) {
      case CommKind::all_reduce: return reduce_parts(op, [&](std::int32_t) { return in; });
      case CommKind::reduce_scatter:
        return reduce_parts(op, [&](std::int32_t part) { return in + part * bytes; });
      case CommKind::all_gather:
        if (bytes > 0 && out + rank_ * bytes != in) std::memcpy(out + rank_ * bytes, in, size(bytes));
        return each_pair([&](std::int32_t to, std::int32_t from) {
          move(to, in, bytes, from, out + from * bytes, bytes);
        });
      case CommKind::all_to_all:
        if (bytes > 0) std::memcpy(out + rank_ * bytes, in + rank_ * bytes, size(bytes));
        return each_pair([&](std::int32_t to, std::int32_t from) {
          move(to, in + to * bytes, bytes, from, out + from * bytes, bytes);
        });
      case CommKind::broadcast:  // of what the root has in `out`
        if (rank_ != op.peer) return move(-1, nullptr, 0, op.peer, out, bytes);
        return each_pair([&](std::int32_t to, std::int32_t) { move(to, out, bytes, -1, nullptr, 0); });
      case CommKind::send: return move(op.peer, in, bytes, -1, nullptr, 0);
      case CommKind::recv: return move(-1, nullptr, 0, op.peer, out, bytes);
      case CommKind::barrier: {
        std::byte sign{}, other{};
        each_pair([&](std::int32_t to, std::int32_t from) { move(to, &sign, 1, from, &other, 1, false); });
      }
    }
  }

  // In the order of the members, so that all have the same bits. Results lie aside until nobody reads `in`.
  template <class PartOf>
  void reduce_parts(const CommOp& op, PartOf&& part_of) {
    const std::int64_t bytes = bytes_of(op);
    if (bytes == 0) return;
    if (scratch_.size() < size(bytes * (size_ + 1))) scratch_.resize(size(bytes * (size_ + 1)));
    std::byte *const arrived = scratch_.data(), *const sum = arrived + bytes * size_;
    std::memcpy(arrived + rank_ * bytes, part_of(rank_), size(bytes));
    each_pair([&](std::int32_t to, std::int32_t from) {
      move(to, part_of(to), bytes, from, arrived + from * bytes, bytes);
    });
    std::memcpy(sum, arrived, size(bytes));
    for (std::int32_t member = 1; member < size_; ++member) reduce(op, sum, arrived + member * bytes);
    std::memcpy(op.out, sum, size(bytes));
  }

  // Each sends to one and receives from one, so nobody waits in a circle.
  template <class Body>
  void each_pair(Body&& body) const {
    for (std::int32_t apart = 1; apart < size_; ++apart)
      body((rank_ + apart) % size_, (rank_ - apart + size_) % size_);
  }

  // Both ways at once: neither side holds the other up. -1: nobody.
  void move(std::int32_t to, const std::byte* sent, std::int64_t send_bytes, std::int32_t from,
            std::byte* received, std::int64_t receive_bytes, bool payload = true) {
    if (payload) counters.bytes_sent += static_cast<std::uint64_t>(send_bytes);
    if (payload) counters.bytes_received += static_cast<std::uint64_t>(receive_bytes);
    while (send_bytes > 0 || receive_bytes > 0) {
      pollfd ends[2] = {{send_bytes > 0 ? peers_[size(to)] : -1, POLLOUT, 0},
                        {receive_bytes > 0 ? peers_[size(from)] : -1, POLLIN, 0}};
      if (aborted_) fail_as("aborted");
      if (::poll(ends, 2, 1000) < 0 && errno != EINTR) fail("poll()");
      if (ends[0].revents != 0) {
        const ssize_t done = ::send(ends[0].fd, sent, size(send_bytes), MSG_DONTWAIT | MSG_NOSIGNAL);
        advance(done, "send()", [&] { sent += done, send_bytes -= done; });
      }
      if (ends[1].revents != 0) {
        const ssize_t done = ::recv(ends[1].fd, received, size(receive_bytes), MSG_DONTWAIT);
        if (done == 0) fail_as("a member is gone");
        advance(done, "recv()", [&] { received += done, receive_bytes -= done; });
      }
    }
  }

  template <class Step>
  void advance(ssize_t done, const char* what, Step&& step) const {
    if (done >= 0) return step();
    if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) fail(what);
  }

  static std::size_t size(std::int64_t number) { return static_cast<std::size_t>(number); }
  [[noreturn]] void fail(const char* what) const {
    fail_as((std::string(what) + ": " + std::strerror(errno)).c_str());
  }
  [[noreturn]] void fail_as(const char* what) const {
    prun::throw_error(ErrorCode::comm_failed, "comm @NAME@: group ", name_, ", member ", rank_, ": ", what);
  }

  std::string name_;
  std::int32_t rank_, size_;
  std::vector<int> peers_;  // by member; -1: itself
  std::vector<CommOp> started_;
  std::vector<std::byte> scratch_;
  std::atomic<bool> aborted_ = false;
};

Member& of(prun::Communicator communicator) { return *static_cast<Member*>(communicator); }

// ---------------------------------------------------------------- the plugin

class @CLASS@ final : public prun::Comm {
 public:
  explicit @CLASS@(const prun::Options& options)
      : most_(static_cast<std::int32_t>(options.integer("most_ranks"))) {}

  prun::CommInfo info() override {
    prun::CommInfo info;
    info.name = "@NAME@";
    info.host_memory = true;  // of a device's memory, prun makes copies
    info.communicator_descriptors = most_;
    return info;
  }
  prun::Communicator create(const prun::CommGroup& group) override {
    if (group.size > most_)
      prun::throw_error(ErrorCode::bad_input, "group ", group.name.view(), " has ", group.size,
                        " ranks; set [comm.@NAME@] most_ranks");
    return new Member(group);
  }
  void destroy(prun::Communicator communicator) override { delete &of(communicator); }
  void connect(prun::Communicator communicator, const CommOp* ops, std::int64_t count, void*) override {
    of(communicator).prepare(ops, count);
  }
  void start(prun::Communicator communicator, const CommOp* ops, std::int64_t count, void*) override {
    of(communicator).start(ops, count);
  }
  void finish(prun::Communicator communicator) override { of(communicator).finish(); }
  void abort(prun::Communicator communicator) override { of(communicator).abort(); }
  prun::CommCounters counters(prun::Communicator communicator) override {
    return of(communicator).counters;
  }

  // Returns what counters() will say of an operation, and the memory that it takes.
  prun::CommNeeds needs(const CommOp& op, std::int32_t rank, std::int32_t size) override {
    const auto bytes = static_cast<std::uint64_t>(bytes_of(op));
    const auto others = static_cast<std::uint64_t>(size - 1);
    prun::CommNeeds needs;
    if (reduces(op.kind)) needs.memory_bytes = bytes_of(op) * (size + 1);
    switch (op.kind) {
      case CommKind::recv:
      case CommKind::barrier: break;
      case CommKind::send: needs.bytes_sent = bytes; break;
      case CommKind::broadcast: needs.bytes_sent = rank == op.peer ? bytes * others : 0; break;
      default: needs.bytes_sent = bytes * others;
    }
    return needs;
  }

 private:
  std::int32_t most_;
};

}  // namespace

PRUN_PLUGIN(comm, @CLASS@, "@NAME@", "0.1.0", "Sockets between the ranks of one host", "",
            "most_ranks | int | 16 | 2..1024 | Maximum number of ranks in a group; each takes an open file\n");
)~";
}

}  // namespace prun
