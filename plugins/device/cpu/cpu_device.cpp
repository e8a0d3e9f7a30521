// Implements the device `cpu`: the memory and the cores of this process.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "attention_fusion.hpp"
#include "experts_fusion.hpp"
#include "gradient_fusion.hpp"
#include "host/host_memory.hpp"
#include "isa.hpp"
#include "prun/plugin.hpp"
#include "queue.hpp"
#include "update_fusion.hpp"
#include "worker_pool.hpp"

namespace prun::cpu {
namespace {

std::string describe(std::int32_t threads, Isa isa) {
  return "cpu: " + std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") + name_of(isa);
}

std::int64_t gib(const Options& options, std::string_view key) {
  return static_cast<std::int64_t>(options.number(key) * (1 << 30));
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const Options& options)
      : isa_(choose_isa(options.text("isa"))),
        cores_(usable_cores()),
        threads_(static_cast<std::int32_t>(options.integer("threads"))),
        fuse_(options.flag("fuse")),
        spin_(options.integer("spin_us")),
        peak_flops_(options.number("peak_gflops") * 1e9),
        tells_(options.local_rank() == 0),
        memory_bytes_(host::memory_limit(gib(options, "host_gib"))),
        planned_bytes_(gib(options, "plan_gib")) {
    // Ranks that have no core each would only take turns with threads of their own.
    const bool crowded = options.local_ranks() > ::sysconf(_SC_NPROCESSORS_ONLN);
    if (threads_ == 0) threads_ = crowded ? 1 : static_cast<std::int32_t>(cores_.size());
    pin_ = options.flag("pin") && !crowded && static_cast<std::size_t>(threads_) == cores_.size();
    name_ = describe(threads_, isa_);
    arithmetic_ = std::string("isa = \"") + name_of(isa_) + "\"";
    for (const KernelDef& def : kernels_of(isa_))
      PRUN_CHECK(kernels_.emplace(def.op, def).second, "two kernels for op ", def.op, " on ", name_of(isa_));
  }

  DeviceInfo info() override {
    DeviceInfo info;
    info.name = name_;
    info.kind = "cpu";
    info.arithmetic = arithmetic_;
    info.threads = threads_;
    info.memory_bytes = planned_bytes_ > 0 ? planned_bytes_ : memory_bytes_;
    info.peak_flops = peak_flops_;
    info.host_memory = true;
    return info;
  }

  // All spaces are in the same memory.
  void* allocate(Space, std::int64_t bytes) override {
    const std::int64_t before = allocated_.load();
    // Beyond this the system would not refuse but end the process.
    if (bytes > memory_bytes_ - before)
      throw_error(
          ErrorCode::unsupported, "device cpu: ", bytes, " bytes do not fit: ", before, " of ", memory_bytes_,
          " are in use; use a smaller model or batch, a machine with more memory, or raise the memory limit "
          "of this process's control group; where the machine has more than the system shows, say so by "
          "host_gib");
    std::string note;
    void* memory = host::map_memory(bytes, &note);
    allocated_ += bytes;
    if (tells_ && !note.empty()) log_line(note);
    return memory;
  }

  void release(Space, void* memory, std::int64_t bytes) override {
    host::unmap_memory(memory, bytes);
    allocated_ -= bytes;
  }

  void upload(void* device, const void* host, std::int64_t bytes) override { copy(device, host, bytes); }
  void download(void* host, const void* device, std::int64_t bytes) override { copy(host, device, bytes); }

  void clear(void* memory, std::int64_t bytes) override {
    std::memset(memory, 0, static_cast<std::size_t>(bytes));
  }

  const KernelDef* kernel(std::string_view op) override {
    const auto found = kernels_.find(op);
    return found == kernels_.end() ? nullptr : &found->second;
  }

  void lower(ProgramRef program) override {
    if (!fuse_) return;
    fuse_packed_attention(program);
    fuse_residual_gradients(program);
    fuse_expert_gradients(program);
    fuse_kept_updates(program);
  }

  Queue create_queue(std::string_view name, bool workers) override {
    const std::int32_t threads = workers ? threads_ : 1;
    queues_.push_back(std::make_unique<CpuQueue>(name, threads, choose_cores(workers), spin_));
    return queues_.back().get();
  }

  void destroy_queue(Queue queue) override {
    const auto same = [queue](const std::unique_ptr<CpuQueue>& owned) { return owned.get() == queue; };
    PRUN_CHECK(std::erase_if(queues_, same) == 1, "a queue that this device does not have");
  }

  void attach(Queue queue) override { of(queue).attach(); }
  BoundWork bind(Queue queue, const Launch* launches, std::int64_t count) override {
    return const_cast<CpuQueue::Launches*>(&of(queue).bind({launches, static_cast<std::size_t>(count)}));
  }
  void run(Queue queue, BoundWork work) override {
    of(queue).run(*static_cast<const CpuQueue::Launches*>(work));
  }

 private:
  static CpuQueue& of(Queue queue) { return *static_cast<CpuQueue*>(queue); }

  static void copy(void* to, const void* from, std::int64_t bytes) {
    PRUN_CHECK(bytes >= 0, bytes, " bytes");
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  // Returns all cores: a thread for each is pinned to it, in the first queue that computes. Were there more
  // cores than threads, another process that chose as this one does would compute on the same ones, and the
  // others would idle.
  Binding choose_cores(bool workers) const {
    const auto is_pinned = [](const auto& queue) { return queue->binding().pinned; };
    return {cores_, workers && pin_ && std::ranges::none_of(queues_, is_pinned)};
  }

  Isa isa_;
  std::vector<int> cores_;
  std::int32_t threads_;
  bool pin_ = false;
  bool fuse_;
  std::chrono::microseconds spin_;
  double peak_flops_;
  bool tells_;  // says that this rank prints lines for all ranks of the host
  std::int64_t memory_bytes_, planned_bytes_;
  std::atomic<std::int64_t> allocated_ = 0;
  std::string name_, arithmetic_;
  std::unordered_map<std::string_view, KernelDef> kernels_;  // keys are KernelDef::op
  std::vector<std::unique_ptr<CpuQueue>> queues_;
};

}  // namespace
}  // namespace prun::cpu

PRUN_PLUGIN(device, prun::cpu::CpuDevice, "cpu", "0.1.0", "The cores and the memory of this machine",
            "also=host; comm=ucx; memory=host_gib; plan=plan_gib; plan_threads=threads; "
            "plan_units=plan_units",
            "threads | int | 0 | 0..1024 | Compute threads; 0: one for every core that this process may use, "
            "or one if ranks outnumber the machine's cores\n"
            "pin | bool | true | | Pin each thread to a core, if this process may use exactly as many cores "
            "as it has threads\n"
            "fuse | bool | true | | Fuse several ops into one where possible; results are identical\n"
            "isa | choice | auto | auto,generic,avx2,avx512 | Instruction set; auto: the best available\n"
            "spin_us | int | 200 | 0..1000000 | Microseconds that an idle thread spins before it sleeps\n"
            "peak_gflops | float | 0 | 0.. | Peak GFLOP/s for the MFU column; 0: no column\n"
            "host_gib | float | 0 | 0..1073741824 | Memory of this machine in GiB, if the system reports "
            "less (a virtual machine that grows); a cgroup limit still applies; 0: what the system reports\n"
            "plan_gib | float | 0 | 0..1073741824 | Plan as if this machine had this much memory, in GiB (to "
            "plan for another machine); 0: use what is installed\n"
            "plan_units | int | 0 | 0..1048576 | Plan as if each host ran this many ranks (to plan for "
            "several hosts); 0: all ranks run on one\n");
