// Implements the comm plugin `nccl`: it exchanges device memory between GPUs, enqueued on the streams of the
// device `cuda`.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "group_member.hpp"
#include "prun/plugin.hpp"

namespace prun::nccl {
namespace {

// This is for NCCL's kernels and what it keeps for the process: a little more than was measured with three
// and four communicators (docs/measured).
constexpr std::int64_t process_device_bytes = std::int64_t{128} << 20;
// A communicator has, for each block, a connection to either neighbour in the ring, with the buffers of
// NCCL's three protocols, and what it keeps besides.
constexpr std::int64_t connection_bytes = (4 << 20) + 4915200 + 524288;
constexpr std::int64_t communicator_device_bytes = std::int64_t{16} << 20;
// This counts the host's memory.
constexpr std::int64_t process_bytes = std::int64_t{320} << 20;
constexpr std::int64_t communicator_bytes = std::int64_t{16} << 20;
constexpr std::int64_t communicator_descriptors = 32;
constexpr std::int64_t threads = 16;

// Returns the multiprocessors of the current GPU, or of an H100 or H200 where no GPU can be asked.
int multiprocessors() {
  int device = 0, count = 0;
  const bool known = cudaGetDevice(&device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) == cudaSuccess;
  return known ? count : 132;
}

class NcclComm final : public Comm {
 public:
  explicit NcclComm(const Options& options)
      : blocks_{static_cast<int>(options.integer("min_ctas")), static_cast<int>(options.integer("max_ctas"))},
        multicast_(options.flag("nvls")),
        registers_(options.flag("register")),
        graphs_(options.flag("graphs")),
        any_algorithm_(options.text("algorithm") == "any"),
        debug_(options.text("debug")),
        folders_(options.text("libraries")) {
    if (blocks_.least > blocks_.most)
      throw_error(ErrorCode::bad_input, "comm nccl: min_ctas = ", blocks_.least,
                  " is more than max_ctas = ", blocks_.most);
    if (options.has("communicator_mib")) communicator_mib_ = options.integer("communicator_mib");
  }

  CommInfo info() override {
    CommInfo info;
    info.name = "nccl: device memory";
    info.device_memory = true;
    info.enqueues = true;
    info.splits = true;
    info.resident = resident();
    info.process_bytes = process_bytes;
    info.communicator_bytes = communicator_bytes;
    info.process_device_bytes = process_device_bytes;
    info.communicator_device_bytes = communicator_mib_
                                         ? *communicator_mib_ << 20
                                         : communicator_device_bytes + 2 * blocks_.most * connection_bytes;
    info.threads = threads;
    info.communicator_descriptors = communicator_descriptors;
    return info;
  }

  std::string examine() override {
    return "good|NCCL|" + api().version + ", " + api().library.path() + "|\n";
  }

  Communicator create(const CommGroup& group) override {
    const Blocks blocks = blocks_for(group.groups);
    if (group.parent) return GroupMember::split(of(group.parent), group, blocks).release();
    auto member = std::make_unique<GroupMember>(api(), group, blocks);
    groups_ = group.groups;
    if (group.rank == 0) introduce(group);
    return member.release();
  }
  void destroy(Communicator communicator) override {
    std::unique_ptr<GroupMember>(&of(communicator)).reset();
  }

  // Memory that cannot be registered costs time and nothing else.
  void attach_memory(Communicator communicator, void* base, std::int64_t bytes) override {
    if (!registers_) return;
    const std::string problem = of(communicator).enroll(base, bytes);
    if (!problem.empty())
      log_line("NCCL does not register memory for '", of(communicator).name(),
               "' and copies what it sends: ", problem);
  }
  void detach_memory(Communicator communicator) override { of(communicator).dismiss(); }
  void connect(Communicator communicator, const CommOp* ops, std::int64_t count, void* stream) override {
    keep_order();
    of(communicator).connect(span_of(ops, count), static_cast<cudaStream_t>(stream));
  }
  // Graphs that are launched anew each step know nothing of the order that NCCL keeps between groups, and
  // NCCL 2.28 dies of capturing them.
  void prepare(Communicator communicator, const CommOp* ops, std::int64_t count, void* stream) override {
    if (graphs_ && all_find_room())
      of(communicator).prepare(span_of(ops, count), static_cast<cudaStream_t>(stream));
  }
  void start(Communicator communicator, const CommOp* ops, std::int64_t count, void* stream) override {
    of(communicator).start(span_of(ops, count), static_cast<cudaStream_t>(stream));
  }
  void finish(Communicator) override {
    throw_error(ErrorCode::internal, "comm nccl: finish() of a comm plugin that enqueues");
  }
  void abort(Communicator communicator) override { of(communicator).abort(); }
  CommCounters counters(Communicator communicator) override { return of(communicator).counters(); }
  void check(Communicator communicator) override { of(communicator).check(); }
  CommNeeds needs(const CommOp& op, std::int32_t rank, std::int32_t size) override {
    return {traffic_of(op, rank, size).sent, 0};
  }

 private:
  static GroupMember& of(Communicator communicator) { return *static_cast<GroupMember*>(communicator); }
  static std::span<const CommOp> span_of(const CommOp* ops, std::int64_t count) {
    return {ops, static_cast<std::size_t>(count)};
  }

  // Exchanges that wait for a peer keep their multiprocessors, one for each block.
  std::int64_t resident() const { return std::max(1, multiprocessors() / std::max(1, blocks_.least)); }

  // Returns as many blocks as allowed with which one exchange of each group finds room.
  Blocks blocks_for(std::int32_t groups) const {
    const int room = multiprocessors() / std::max(1, groups);
    return {blocks_.least, std::clamp(room, std::max(1, blocks_.least), blocks_.most)};
  }

  // Communicators may be made by several threads at once.
  const Api& api() {
    const std::lock_guard lock(mutex_);
    if (!api_) {
      set_environment();
      api_.emplace(folders_);
    }
    return *api_;
  }

  // Sets what NCCL has no communicator's setting for. What the environment says already stays.
  void set_environment() const {
    setenv("NCCL_NVLS_ENABLE", multicast_ ? "1" : "0", 0);
    setenv("NCCL_RAS_ENABLE", "0", 0);  // would be a port for questions
    if (!any_algorithm_) setenv("NCCL_ALGO", "Ring", 0);
    if (debug_ == "off") return;
    setenv("NCCL_DEBUG", debug_ == "warn" ? "WARN" : "INFO", 0);
    setenv("NCCL_DEBUG_FILE", "/dev/stderr", 0);
  }

  // Must be called before NCCL launches anything: with more groups than find room at a time, each exchange
  // must begin after the one before it, as CommInfo::resident promises.
  void keep_order() const {
    if (!all_find_room()) setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  }
  bool all_find_room() const { return groups_ <= resident(); }

  void introduce(const CommGroup& group) {
    const char* const multicast = std::getenv("NCCL_NVLS_ENABLE");
    log_line("NCCL ", api().version, " (", api().library.path(), "): ", group.size, " ranks, at most ",
             blocks_for(group.groups).most, " blocks for an exchange, NVLink multicast ",
             multicast && std::string_view(multicast) != "0" ? "on" : "off",
             registers_ ? ", memory registered" : "");
  }

  const Blocks blocks_;
  const bool multicast_, registers_, graphs_, any_algorithm_;
  const std::string debug_, folders_;
  std::optional<std::int64_t> communicator_mib_;
  std::mutex mutex_;
  std::optional<Api> api_;
  std::int64_t groups_ = 0;  // counts the groups that a rank is in
};

}  // namespace
}  // namespace prun::nccl

PRUN_PLUGIN(comm, prun::nccl::NcclComm, "nccl", "0.1.0", "Device memory between GPUs, with NCCL", "",
            "min_ctas | int | 1 | 1..64 | Minimum number of CTAs (thread blocks) of a collective\n"
            "max_ctas | int | 16 | 1..64 | Maximum number of CTAs (thread blocks) of a collective; each "
            "occupies a multiprocessor, so with many groups it is lowered until all fit together\n"
            "algorithm | choice | ring | ring,any | ring: rings only; any: NCCL's choice for each size; "
            "NCCL_ALGO overrides it\n"
            "nvls | bool | false | | Use NVLink multicast (NVLS); NCCL_NVLS_ENABLE overrides it\n"
            "register | bool | false | | Register the plan's memory with each communicator\n"
            "graphs | bool | true | | Launch collectives as CUDA graphs captured before the first step, "
            "where all of a rank's groups fit on its GPU at a time\n"
            "communicator_mib | int | none | 0..1048576 | Device memory to plan for a communicator, in MiB; "
            "empty: estimated from max_ctas\n"
            "debug | choice | off | off,warn,info | NCCL's log level on stderr; NCCL_DEBUG overrides it\n"
            "libraries | string | | | Folders to search first for NCCL\n");
