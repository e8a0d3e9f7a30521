// Implements the comm plugin `ucx`: it exchanges host memory over whatever UCX finds between two processes.
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "communicator.hpp"
#include "prun/plugin.hpp"
#include "run_queue.hpp"

namespace prun::ucx {
namespace {

// These were measured with ranks of one machine. The process has UCX's libraries and its context. A
// communicator has a worker: most of it is the receive buffers of both kinds of shared memory, whether used
// or not; each peer adds tens of KiB.
constexpr std::int64_t process_bytes = std::int64_t{4} << 20;
constexpr std::int64_t communicator_bytes = std::int64_t{5} << 18;
constexpr std::int64_t communicator_descriptors = 12;
constexpr std::int64_t communicator_shared_bytes = std::int64_t{548} << 10;

std::string library_version() {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
}

class UcxComm final : public Comm {
 public:
  explicit UcxComm(const Options& options)
      : name_("ucx " + library_version() + ": host memory"),
        settings_{{options.integer("chunk_kib") * 1024, options.integer("small_kib") * 1024},
                  std::chrono::microseconds(options.integer("spin_us")),
                  options.flag("shared_memory")} {}

  CommInfo info() override {
    CommInfo info;
    info.name = name_;
    info.host_memory = true;
    info.process_bytes = process_bytes;
    info.communicator_bytes = communicator_bytes;
    info.threads = 1;
    info.communicator_descriptors = communicator_descriptors;
    // A user who chooses transports knows what they take.
    info.communicator_shared_bytes = std::getenv("UCX_TLS") ? 0 : communicator_shared_bytes;
    return info;
  }

  std::string examine() override {
    const std::string reached = reach_of_groups();
    return reached.empty() ? what_there_is() : reached;
  }

  Communicator create(const CommGroup& group) override {
    auto member = std::make_unique<GroupMember>(
        group, [this] { return context(); }, settings_);
    const std::lock_guard lock(mutex_);
    members_.insert(member.get());
    return member.release();
  }
  void destroy(Communicator communicator) override {
    const std::unique_ptr<GroupMember> member(&of(communicator));
    const std::lock_guard lock(mutex_);
    members_.erase(member.get());
  }

  void connect(Communicator communicator, const CommOp* ops, std::int64_t count, void*) override {
    of(communicator).prepare(ops, count);
  }
  void start(Communicator communicator, const CommOp* ops, std::int64_t count, void*) override {
    of(communicator).start(ops, count);
  }
  void finish(Communicator communicator) override { of(communicator).finish(); }
  void abort(Communicator communicator) override { of(communicator).abort(); }
  CommCounters counters(Communicator communicator) override { return of(communicator).counters(); }
  CommNeeds needs(const CommOp& op, std::int32_t rank, std::int32_t size) override {
    return Library(rank, size, settings_.tuning).needs(op);
  }

 private:
  static GroupMember& of(Communicator communicator) { return *static_cast<GroupMember*>(communicator); }

  std::string reach_of_groups() {
    const std::lock_guard lock(mutex_);
    std::set<std::string> lines;
    for (const GroupMember* member : members_)
      if (!member->reach().empty()) lines.insert(member->reach() + "\n");
    std::string text;
    for (const std::string& line : lines) text += line;
    return text;
  }

  // A connection takes the fastest of UCX's transports that both ends have.
  std::string what_there_is() {
    const std::set<std::string> ways = context()->transports();
    std::string list;
    for (const std::string& way : ways) list += (list.empty() ? "" : " ") + way;
    const bool shares = ways.count("posix") + ways.count("sysv") > 0;
    return (shares ? "good" : "slow") + ("|UCX transports|" + list + "|") +
           (shares ? ""
                   : "let UCX_TLS name posix or sysv as well: ranks of a host talk through their network "
                     "otherwise") +
           "\n";
  }

  // Communicators may be made by several threads at once.
  std::shared_ptr<Context> context() {
    const std::lock_guard lock(mutex_);
    if (!context_) context_ = std::make_shared<Context>();
    return context_;
  }

  std::string name_;
  Settings settings_;
  std::mutex mutex_;
  std::shared_ptr<Context> context_;
  std::set<const GroupMember*> members_;
};

}  // namespace
}  // namespace prun::ucx

PRUN_PLUGIN(
    comm, prun::ucx::UcxComm, "ucx", "0.1.0", "Host memory over shared memory, TCP or RDMA, with UCX",
    "shared_folder=UCX_POSIX_DIR; log=PRUN_UCX_LOG",
    "chunk_kib | int | 512 | 4..1048576 | Message size of a pipelined collective, in KiB\n"
    "small_kib | int | 32 | 0..1048576 | Use as few messages as possible for collectives of up to this many "
    "KiB, in place of a pipeline\n"
    "spin_us | int | 100 | 0..1000000 | Microseconds that a thread polls for messages before it sleeps\n"
    "shared_memory | bool | true | | Use shared memory within a machine; false: communicate as between "
    "machines\n");
