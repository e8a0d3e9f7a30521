// Holds the template of a device, which works on any machine.
#include "plugin_check/scaffold.hpp"

namespace prun {

// ------------------------------------------------------------------- scaffold device

std::string_view scaffold_device() {  // NOLINT(readability-function-size): it is a text
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
            "memory_gib | float | 1 | 0.001..1048576 | Device memory that plans may use, in GiB\n");
)~";
}

// ------------------------------------------------------------------- scaffold tier
// Holds the template of a tier, which works on any machine.

std::string_view scaffold_tier() {  // NOLINT(readability-function-size): it is a text
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

// Holds what was allocated: a file without a name, and addresses that stand for its bytes and hold none.
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

  // Reads and writes have separate queues, and so run beside each other.
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
            "folder | string | /tmp | | Folder for its files; they are unnamed and end with the run\n");
)~";
}

}  // namespace prun
