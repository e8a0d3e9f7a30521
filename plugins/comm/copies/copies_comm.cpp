// Implements the comm plugin `copies`: GPUs of one host write into each other's memory by their copy engines,
// and wait for numbers that they write behind it. No kernel runs but that of a sum.
#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "group_member.hpp"
#include "lanes.hpp"
#include "prun/plugin.hpp"

namespace prun::copies {
namespace {

// Opening another process' memory makes page tables, and a context of its GPU in part.
constexpr std::int64_t process_device_bytes = std::int64_t{64} << 20;
constexpr std::int64_t process_bytes = std::int64_t{64} << 20, communicator_bytes = std::int64_t{1} << 20;
constexpr std::int64_t communicator_descriptors = 2 * most_members;

class CopiesComm final : public Comm {
 public:
  explicit CopiesComm(const Options& options)
      : settings_{options.integer("buffer_mib") << 20, options.integer("message_mib") << 20,
                  static_cast<int>(options.integer("blocks")), options.flag("direct"),
                  static_cast<std::int32_t>(options.integer("lanes"))} {}

  CommInfo info() override {
    CommInfo info;
    info.name = "copies: device memory of one host";
    info.device_memory = true;
    info.enqueues = true;
    info.process_bytes = process_bytes;
    info.communicator_bytes = communicator_bytes;
    info.process_device_bytes = process_device_bytes;
    info.communicator_device_bytes = settings_.buffer_bytes;
    info.threads = 1;
    info.communicator_descriptors = communicator_descriptors;
    info.communicator_shared_bytes = static_cast<std::int64_t>(SharedPage::bytes());
    return info;
  }

  std::string examine() override;

  Communicator create(const CommGroup& group) override {
    return std::make_unique<GroupMember>(driver(), group, settings_).release();
  }
  void destroy(Communicator communicator) override {
    std::unique_ptr<GroupMember>(&of(communicator)).reset();
  }
  void attach_memory(Communicator communicator, void* base, std::int64_t) override {
    of(communicator).attach(base);
  }
  void detach_memory(Communicator communicator) override { of(communicator).detach(); }
  void prepare(Communicator communicator, const CommOp* ops, std::int64_t count, void*) override {
    of(communicator).prepare({ops, static_cast<std::size_t>(count)});
  }
  void connect(Communicator communicator, const CommOp* ops, std::int64_t count, void* stream) override {
    of(communicator).connect({ops, static_cast<std::size_t>(count)}, static_cast<cudaStream_t>(stream));
  }
  void start(Communicator communicator, const CommOp* ops, std::int64_t count, void* stream) override {
    of(communicator).start({ops, static_cast<std::size_t>(count)}, static_cast<cudaStream_t>(stream));
  }
  void finish(Communicator) override {
    throw_error(ErrorCode::internal, "comm copies: finish() of a comm plugin that enqueues");
  }
  void abort(Communicator communicator) override { of(communicator).abort(); }
  CommCounters counters(Communicator communicator) override { return of(communicator).counters(); }
  void check(Communicator communicator) override { of(communicator).check(); }
  CommNeeds needs(const CommOp& op, std::int32_t rank, std::int32_t size) override {
    if (size > most_members)
      throw_error(ErrorCode::unsupported, "comm copies: a group of ", size, " ranks; it takes ", most_members,
                  " of one host at most: use comm nccl");
    check_can_fold(op, "");
    return {traffic_of(op, settings_.layout(rank, size)).sent, 0};
  }

 private:
  static GroupMember& of(Communicator communicator) { return *static_cast<GroupMember*>(communicator); }

  // Communicators may be made by several threads at once.
  const Driver& driver() {
    const std::lock_guard lock(mutex_);
    if (!driver_) driver_.emplace();
    return *driver_;
  }

  const Settings settings_;
  std::mutex mutex_;
  std::optional<Driver> driver_;
};

// Says which GPUs of this machine reach each other's memory.
std::string CopiesComm::examine() {
  int count = 0, pairs = 0, reached = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return {};
  for (int a = 0; a < count; ++a)
    for (int b = 0; b < count; ++b) {
      int can = 0;
      if (a == b) continue;
      ++pairs;
      reached += cudaDeviceCanAccessPeer(&can, a, b) == cudaSuccess && can;
    }
  const std::string text = std::to_string(count) + " GPUs, " + std::to_string(reached) + " of " +
                           std::to_string(pairs) + " pairs reach each other's memory";
  if (reached == pairs) return "good|comm copies|" + text + "|\n";
  return "slow|comm copies|" + text + "|use comm nccl between the others\n";
}

}  // namespace
}  // namespace prun::copies

PRUN_PLUGIN(
    comm, prun::copies::CopiesComm, "copies", "0.1.0",
    "Device memory between GPUs of one host, by their copy engines", "shared_folder=PRUN_COPIES_SHARED",
    "direct | bool | true | | Copy directly into the result buffers of other ranks where that memory can be "
    "mapped, instead of through staging slots\n"
    "buffer_mib | int | 128 | 1..65536 | Maximum device memory for messages, in MiB per communicator\n"
    "message_mib | int | 16 | 1..1024 | Maximum message size in MiB; longer collectives are split, so that "
    "received parts are summed while others arrive\n"
    "blocks | int | 32 | 1..1024 | Maximum number of thread blocks of a sum\n"
    "lanes | int | 4 | 1..15 | Maximum number of streams that send; with one for each other rank all are "
    "sent to at once, ranks that share one are sent to one after the other\n");
