// Holds templates for what a program runs on: a device, a tier, a comm plugin. All of them work on any
// machine.
#include "conform/scaffold_templates.hpp"

namespace prun {

std::string_view scaffold_device() {
  return R"~(
// A device that computes on the host, with kernels for three ops: a start for your own device. It trains once
// it has a kernel for every op of a program; `prun plan RECIPE` names the first that is missing.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include "prun/plugin.hpp"

namespace {

using prun::DType;
using prun::KernelArgs;
using prun::KernelContext;
using prun::Launch;
using prun::Space;

// ---------------------------------------------------------------- kernels

std::size_t bytes_of(const prun::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.elements() * prun::size_of(tensor.dtype));
}

void zero(const KernelArgs& args, const KernelContext&) {
  std::memset(args.operands[0].data, 0, bytes_of(args.operands[0]));
}

void copy(const KernelArgs& args, const KernelContext&) {
  std::memcpy(args.operands[1].data, args.operands[0].data, bytes_of(args.operands[0]));
}

template <class T>
void add(const KernelArgs& args, const KernelContext&) {
  const T *a = args.operands[0].as<const T>(), *b = args.operands[1].as<const T>();
  T* y = args.operands[2].as<T>();
  for (std::int64_t i = 0; i < args.operands[2].elements(); ++i) y[i] = T(a[i] + b[i]);
}

prun::Kernel select_zero(const prun::OpShape&) { return zero; }
prun::Kernel select_copy(const prun::OpShape&) { return copy; }
// The kernel for an element type; null where there is none.
prun::Kernel select_add(const prun::OpShape& shape) {
  switch (shape.operand[0].dtype) {
    case DType::f32: return add<float>;
    case DType::f64: return add<double>;
    case DType::bf16: return add<prun::bf16>;
    case DType::f16: return add<prun::f16>;
    default: return nullptr;
  }
}

constexpr prun::KernelDef kernels[] = {{"zero", select_zero}, {"copy", select_copy}, {"add", select_add}};

// ---------------------------------------------------------------- the device

// A queue runs on the thread that feeds it; pieces of work stay until it goes.
struct HostQueue {
  std::deque<std::vector<Launch>> works;
};

class @CLASS@ final : public prun::Device {
 public:
  explicit @CLASS@(const prun::Options& options)
      : memory_bytes_(static_cast<std::int64_t>(options.number("memory_gib") * (1 << 30))) {}

  prun::DeviceInfo info() override {
    prun::DeviceInfo info;
    info.name = "@NAME@";
    info.kind = "@NAME@";  // what op plugins name their kernels for it by
    info.memory_bytes = memory_bytes_;
    info.host_memory = true;  // the host reads and writes Space::device itself
    return info;
  }

  // All spaces but the disk are the same memory here.
  void* allocate(Space space, std::int64_t bytes) override {
    if (space == Space::disk) prun::throw_error(prun::ErrorCode::bad_input, "@NAME@ is no tier");
    const std::size_t rounded = (static_cast<std::size_t>(bytes) / 4096 + 1) * 4096;
    void* const memory = std::aligned_alloc(4096, rounded);
    if (!memory) prun::throw_error(prun::ErrorCode::unsupported, "the system has no ", bytes, " bytes");
    return std::memset(memory, 0, rounded);
  }
  void release(Space, void* memory, std::int64_t) override { std::free(memory); }
  void upload(void* device, const void* host, std::int64_t bytes) override { move(device, host, bytes); }
  void download(void* host, const void* device, std::int64_t bytes) override { move(host, device, bytes); }
  void clear(void* device, std::int64_t bytes) override {
    if (bytes > 0) std::memset(device, 0, static_cast<std::size_t>(bytes));
  }

  const prun::KernelDef* kernel(std::string_view op) override {
    for (const prun::KernelDef& known : kernels)
      if (op == known.op) return &known;
    return nullptr;
  }

  prun::Queue create_queue(std::string_view, bool) override {
    const std::scoped_lock lock(mutex_);
    return &queues_.emplace_back();
  }
  // Queues are few: what one held goes with the device.
  void destroy_queue(prun::Queue queue) override { static_cast<HostQueue*>(queue)->works.clear(); }
  void attach(prun::Queue) override {}
  prun::BoundWork bind(prun::Queue queue, const Launch* launches, std::int64_t count) override {
    return &static_cast<HostQueue*>(queue)->works.emplace_back(launches, launches + count);
  }
  void run(prun::Queue, prun::BoundWork work) override {
    for (const Launch& launch : *static_cast<std::vector<Launch>*>(work)) launch.kernel(launch.args, {});
  }

 private:
  static void move(void* to, const void* from, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  std::int64_t memory_bytes_;
  std::mutex mutex_;
  std::deque<HostQueue> queues_;
};

}  // namespace

PRUN_PLUGIN(device, @CLASS@, "@NAME@", "0.1.0", "Computes on the host", "",
            "memory_gib | float | 1 | 0.001..1048576 | GiB of memory that plans count on\n");
)~";
}

std::string_view scaffold_tier() {
  return R"~(
// A tier that keeps bytes in files of a folder: a start for your own. Name it where something is to lie:
// [[strategy]] plugin = "offload", optimizer = "@NAME@"; its options stand in [tier.@NAME@].
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "prun/plugin.hpp"

namespace {

using prun::ErrorCode;
using prun::Launch;
using prun::Space;

[[noreturn]] void fail(const char* what, const std::string& where) {
  prun::throw_error(ErrorCode::storage, "cannot ", what, " ", where, ": ", std::strerror(errno));
}

// What was allocated: a file without a name, and addresses that stand for its bytes and hold none.
class Shelf {
 public:
  Shelf(const std::string& folder, std::int64_t bytes)
      : folder_(folder), bytes_(std::max<std::int64_t>(bytes, 1)) {
    std::string pattern = folder + "/@NAME@-XXXXXX";
    file_ = ::mkostemp(pattern.data(), O_CLOEXEC);
    if (file_ < 0) fail("make a file in", folder);
    ::unlink(pattern.c_str());
    void* const addresses = ::mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_NONE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (addresses == MAP_FAILED) fail("set addresses aside for", folder);
    begin_ = static_cast<std::byte*>(addresses);
    if (::ftruncate(file_, bytes_) != 0) fail("make room in", folder);  // zeros, until they are written
  }
  ~Shelf() {
    if (begin_) ::munmap(begin_, static_cast<std::size_t>(bytes_));
    ::close(file_);
  }
  Shelf(const Shelf&) = delete;
  Shelf& operator=(const Shelf&) = delete;

  std::byte* begin() const { return begin_; }
  bool has(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    return begin_ <= at && at < begin_ + bytes_;
  }
  void write(const void* to, const void* from, std::int64_t bytes) const {
    each_piece(to, bytes, "write to", [&](std::int64_t done, std::int64_t left, std::int64_t at) {
      return ::pwrite(file_, static_cast<const std::byte*>(from) + done, static_cast<std::size_t>(left), at);
    });
  }
  void read(void* to, const void* from, std::int64_t bytes) const {
    each_piece(from, bytes, "read from", [&](std::int64_t done, std::int64_t left, std::int64_t at) {
      return ::pread(file_, static_cast<std::byte*>(to) + done, static_cast<std::size_t>(left), at);
    });
  }

 private:
  template <class Transfer>
  void each_piece(const void* address, std::int64_t bytes, const char* what, Transfer&& transfer) const {
    const std::int64_t first = static_cast<const std::byte*>(address) - begin_;
    for (std::int64_t done = 0; done < bytes;) {
      const ssize_t moved = transfer(done, bytes - done, first + done);
      if (moved < 0 && errno == EINTR) continue;
      if (moved == 0) errno = EIO;  // the file is shorter than it was
      if (moved <= 0) fail(what, folder_);
      done += moved;
    }
  }

  std::string folder_;
  std::int64_t bytes_;
  int file_ = -1;
  std::byte* begin_ = nullptr;
};

// Between memory and a shelf.
struct Move {
  const Shelf* shelf = nullptr;
  bool write = false;
  void* to = nullptr;
  const void* from = nullptr;
  std::int64_t bytes = 0;
};

struct CopyQueue {
  std::deque<std::vector<Move>> works;
};

// The queue runs what stands in its moves; nobody calls this.
void run_by_queue(const prun::KernelArgs&, const prun::KernelContext&) {
  prun::throw_error(ErrorCode::internal, "a kernel of the tier @NAME@ is called beside its queue");
}

prun::Kernel select_copy(const prun::OpShape& shape) {
  const prun::OperandShape &from = shape.operand[0], &to = shape.operand[1];
  return from.bytes() == to.bytes() && from.dtype == to.dtype ? run_by_queue : nullptr;
}

class @CLASS@ final : public prun::Device {
 public:
  explicit @CLASS@(const prun::Options& options)
      : folder_(options.text("folder")), local_ranks_(options.local_ranks()) {}

  // The ranks of a host share what the folder has room for.
  prun::DeviceInfo info() override {
    struct statvfs room {};
    if (::statvfs(folder_.c_str(), &room) != 0) fail("look at", folder_);
    prun::DeviceInfo info;
    info.name = "@NAME@";
    info.kind = "@NAME@";
    info.tier = true;
    info.memory_bytes = static_cast<std::int64_t>(room.f_bavail * room.f_frsize) / local_ranks_;
    return info;
  }

  // The disk alone: memory that copies come from and go to is another device's.
  void* allocate(Space space, std::int64_t bytes) override {
    if (space != Space::disk) prun::throw_error(ErrorCode::bad_input, "a tier has no memory of its own");
    const std::scoped_lock lock(mutex_);
    return shelves_.emplace_back(folder_, bytes).begin();
  }
  void release(Space, void* memory, std::int64_t) override {
    const std::scoped_lock lock(mutex_);
    shelves_.remove_if([&](const Shelf& shelf) { return shelf.begin() == memory; });
  }

  // Of any bytes, on any thread.
  void upload(void* tier, const void* host, std::int64_t bytes) override {
    if (bytes > 0) shelf_of(tier)->write(tier, host, bytes);
  }
  void download(void* host, const void* tier, std::int64_t bytes) override {
    if (bytes > 0) shelf_of(tier)->read(host, tier, bytes);
  }
  void clear(void* tier, std::int64_t bytes) override {
    const std::vector<std::byte> zeros(1 << 20);
    const auto most = static_cast<std::int64_t>(zeros.size());
    for (std::int64_t at = 0; at < bytes; at += most)
      upload(static_cast<std::byte*>(tier) + at, zeros.data(), std::min(most, bytes - at));
  }

  const prun::KernelDef* kernel(std::string_view op) override {
    static constexpr prun::KernelDef copy{"copy", select_copy};
    return op == copy.op ? &copy : nullptr;
  }

  // What reads and what writes are queues of their own, and so run beside each other.
  prun::Queue create_queue(std::string_view, bool) override {
    const std::scoped_lock lock(mutex_);
    return &queues_.emplace_back();
  }
  void destroy_queue(prun::Queue queue) override { static_cast<CopyQueue*>(queue)->works.clear(); }
  void attach(prun::Queue) override {}

  // A copy has one side on a shelf. Addresses are looked up once, here.
  prun::BoundWork bind(prun::Queue queue, const Launch* launches, std::int64_t count) override {
    std::vector<Move>& moves = static_cast<CopyQueue*>(queue)->works.emplace_back();
    for (std::int64_t i = 0; i < count; ++i) {
      const prun::Tensor &from = launches[i].args.operands[0], &to = launches[i].args.operands[1];
      const Shelf *source = shelf_of(from.data), *goal = shelf_of(to.data);
      PRUN_CHECK((source == nullptr) != (goal == nullptr), "one side of a copy must lie on the tier");
      moves.push_back({goal ? goal : source, goal != nullptr, to.data, from.data,
                       from.elements() * prun::size_of(from.dtype)});
    }
    return &moves;
  }
  void run(prun::Queue, prun::BoundWork work) override {
    for (const Move& move : *static_cast<std::vector<Move>*>(work))
      move.write ? move.shelf->write(move.to, move.from, move.bytes)
                 : move.shelf->read(move.to, move.from, move.bytes);
  }

 private:
  // Null: the address is memory.
  const Shelf* shelf_of(const void* address) {
    const std::scoped_lock lock(mutex_);
    for (const Shelf& shelf : shelves_)
      if (shelf.has(address)) return &shelf;
    return nullptr;
  }

  std::string folder_;
  std::int32_t local_ranks_;
  std::mutex mutex_;
  std::list<Shelf> shelves_;
  std::deque<CopyQueue> queues_;
};

}  // namespace

PRUN_PLUGIN(device, @CLASS@, "@NAME@", "0.1.0", "Keeps bytes in files of a folder", "",
            "folder | string | /tmp | | Where its files lie; they have no names and go with the run\n");
)~";
}

std::string_view scaffold_comm() {
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

  // What counters() will say of it, and what it takes of memory.
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
            "most_ranks | int | 16 | 2..1024 | Ranks of a group, each of which takes an open file\n");
)~";
}

}  // namespace prun
