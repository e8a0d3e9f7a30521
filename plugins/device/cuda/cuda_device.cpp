// Implements the device `cuda`: one GPU, fed by one thread through streams.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attention_fusion.hpp"
#include "cuda/stamp.hpp"
#include "driver.hpp"
#include "examine.hpp"
#include "experts_fusion.hpp"
#include "gpu_facts.hpp"
#include "gpu_memory.hpp"
#include "gradient_fusion.hpp"
#include "host/numa.hpp"
#include "libraries.hpp"
#include "op_binder.hpp"
#include "power_meter.hpp"
#include "prun/plugin.hpp"
#include "queue.hpp"
#include "signals.hpp"
#include "stamps.hpp"

namespace prun::cuda {
namespace {

std::string cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) return std::string(cache) + "/prun";
  const char* home = std::getenv("HOME");
  return home && *home ? std::string(home) + "/.cache/prun" : std::string();
}

// Says whether ranks that tune can find what the others have found. Without a file for that they take the
// algorithm that the library names first.
bool can_agree(int local_ranks) { return local_ranks == 1 || !cache_folder().empty(); }

// Must run before the driver is first used. Kernels are then loaded when they are bound, not all of those
// that libraries bring; and streams that may wait for each other get channels of their own, for kernels and
// for copies: behind a copy that waits in a channel, another stream's copy that it waits for would never
// begin.
void set_environment() {
  setenv("CUDA_MODULE_LOADING", "LAZY", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "32", 0);
}

GpuSettings gpu_settings(const Options& options) {
  GpuSettings is;
  is.chosen = options.has("ordinal");
  is.shares = options.flag("share");
  is.local_rank = options.local_rank();
  is.local_ranks = options.local_ranks();
  is.ordinal = is.chosen ? static_cast<int>(options.integer("ordinal")) : is.local_rank;
  is.planned_bytes = static_cast<std::int64_t>(options.number("plan_gib") * (1 << 30));
  is.planned_units = static_cast<int>(options.integer("plan_units"));
  is.planned_gpu = options.text("plan_gpu");
  is.peak_flops = options.number("peak_tflops") * 1e12;
  return is;
}

// Context, kernels and libraries take this: a little more than was measured of any recipe (docs/measured).
constexpr std::int64_t process_bytes = std::int64_t{896} << 20,
                       process_device_bytes = std::int64_t{608} << 20;
// A queue takes this many works before it holds the thread that feeds it; each has one or two commands, on
// average.
constexpr std::int64_t queue_depth = Room::most / 2;

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const Options& options)
      : local_rank_(options.local_rank()),
        names_ops_(options.flag("name_failed_op")),
        graphs_(options.flag("graphs")),
        libraries_({options.text("libraries"), options.flag("tune") && can_agree(options.local_ranks()),
                    options.flag("deterministic"), options.text("attention"), cache_folder()}),
        binder_({.deterministic = options.flag("deterministic"),
                 .few_logits = options.text("logits") == "512MiB"},
                libraries_) {
    set_environment();
    gpu_ = facts_of_gpu(gpu_settings(options), libraries_);
  }

  DeviceInfo info() override {
    DeviceInfo info;
    info.name = gpu_.name;
    info.kind = "cuda";
    info.arithmetic = gpu_.arithmetic;
    info.memory_bytes = gpu_.memory_bytes;
    info.absent = gpu_.absent;
    info.process_bytes = process_bytes;
    info.process_device_bytes = process_device_bytes;
    info.queue_depth = queue_depth;
    info.peak_flops = gpu_.peak_flops;
    info.asynchronous = true;
    info.one_process_each = true;  // its calls may wait for another GPU of the process
    info.unit = gpu_.unit;
    info.units = gpu_.units;
    return info;
  }

  void* allocate(Space space, std::int64_t bytes) override {
    use();
    stay_near();
    return space == Space::device ? memory_.add_device(driver(), gpu_.ordinal, bytes) : pinned(bytes);
  }
  void release(Space space, void* memory, std::int64_t) override {
    use();
    memory_.release(space, memory);
  }
  void upload(void* device, const void* host, std::int64_t bytes) override { transfer(device, host, bytes); }
  void download(void* host, const void* device, std::int64_t bytes) override {
    transfer(host, device, bytes);
  }
  void clear(void* device, std::int64_t bytes) override {
    use();
    check(cudaMemset(device, 0, static_cast<std::size_t>(bytes)), "clearing memory");
    check(cudaDeviceSynchronize(), "clearing memory");
  }

  std::string choices() override { return libraries_.choices(); }
  void prefer(std::string_view lines) override { libraries_.prefer(lines); }
  std::string examine() override { return gpu_.absent ? "" : examine_gpus() + libraries_.examine(); }

  std::int64_t memory_in_use() override {
    use();
    std::size_t free = 0, all = 0;
    check(cudaMemGetInfo(&free, &all), "asking for free memory");
    return static_cast<std::int64_t>(all - free);
  }

  const KernelDef* kernel(std::string_view op) override { return binder_.kernel(op); }

  void lower(ProgramRef program) override {
    fuse_packed_attention(program);
    fuse_residual_gradients(program);
    fuse_expert_gradients(program);
    fuse_gelu_gradients(program);
  }

  Queue create_queue(std::string_view name, bool workers) override {
    use();
    if (!power_) power_.emplace(gpu_.ordinal);
    return queues_
        .emplace_back(std::make_unique<CudaQueue>(
            std::string(name), CudaQueue::Settings{!workers, names_ops_, graphs_, others_}, driver()))
        .get();
  }
  void destroy_queue(Queue queue) override {
    use();
    const auto found = std::find_if(queues_.begin(), queues_.end(),
                                    [queue](const auto& owned) { return owned.get() == queue; });
    PRUN_CHECK(found != queues_.end(), "a queue that this device does not have");
    (*found)->forget_works();
    libraries_.forget((*found)->stream());
    queues_.erase(found);
  }
  // With graphs, a thread's copy was seen to stand still behind what waits in a pipeline's queue, whatever
  // the graphs were made of; without graphs it never was.
  void waits_for_others(bool copied_by_threads) override {
    others_ = true;
    if (copied_by_threads && std::exchange(graphs_, false) && local_rank_ == 0)
      log_line(
          "no CUDA graphs are used where a comm plugin's exchanges are copied through the host's memory");
  }
  DeviceMeter meter() override { return power_ ? power_->read(gpu_.sharers) : DeviceMeter{}; }
  void make_current() override { use(); }
  void attach(Queue) override {
    use();
    say_graphs();
  }

  BoundWork bind(Queue queue, const Launch* launches, std::int64_t count) override {
    use();
    std::vector<NamedWork> works =
        binder_.bind(of(queue), Launches(launches, static_cast<std::size_t>(count)));
    check(cudaStreamSynchronize(of(queue).stream()), "trying work");
    return &of(queue).add(std::move(works));
  }
  void run(Queue queue, BoundWork work) override { of(queue).run(*static_cast<const Piece*>(work)); }

  void* stream(Queue queue) override { return of(queue).stream(); }
  QueueEvent create_event() override {
    use();
    return cuda::create_event();
  }
  void destroy_event(QueueEvent event) override { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }
  void record(Queue queue, QueueEvent event) override { cuda::record(of(queue), event); }
  void wait(Queue queue, QueueEvent event) override { cuda::wait(of(queue), event); }
  void write_counter(Queue queue, Counter* counter, std::uint64_t value) override {
    cuda::write_counter(driver(), of(queue), counter, value);
  }
  void wait_counter(Queue queue, const Counter* counter, std::uint64_t value) override {
    cuda::wait_counter(driver(), of(queue), counter, value);
  }

  Stamp create_stamp() override {
    use();
    return stamps_.create();
  }
  void destroy_stamp(Stamp stamp) override { stamps_.destroy(static_cast<std::uint64_t*>(stamp)); }
  void stamp(Queue queue, Stamp stamp) override {
    of(queue).make_room(1);
    write_time(static_cast<std::uint64_t*>(stamp), of(queue).stream());
  }
  double read(Stamp stamp) override {
    return 1e-9 * static_cast<double>(*static_cast<const volatile std::uint64_t*>(stamp) - clock_start_);
  }
  void check(Queue queue) override { of(queue).check(); }

 private:
  static CudaQueue& of(Queue queue) { return *static_cast<CudaQueue*>(queue); }
  static void check(cudaError_t status, const char* what) { cuda::check(status, what); }

  // Keeps host memory near this GPU. This holds for the whole process, whichever device allocates: a plan's
  // first range is this GPU's.
  void stay_near() const {
    char address[32] = {};
    if (cudaDeviceGetPCIBusId(address, sizeof address, gpu_.ordinal) == cudaSuccess)
      host::prefer_numa_node(host::numa_node_of(address));
  }

  void* pinned(std::int64_t bytes) {
    std::string note;
    void* const at = memory_.add_pinned(bytes, note);
    if (local_rank_ == 0 && !note.empty()) log_line(note);
    return at;
  }

  // Makes this GPU the calling thread's current one.
  void use() {
    const cudaError_t status = cudaSetDevice(gpu_.ordinal);
    if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver)
      throw_error(ErrorCode::unsupported, "device cuda: ", cudaGetErrorString(status),
                  "; use device.plugin = \"cpu\", or a machine with a GPU and its driver");
    check(status, "cudaSetDevice");
  }

  const Driver& driver() {
    std::call_once(loads_driver_, [this] { driver_.emplace(load_driver()); });
    return *driver_;
  }

  void transfer(void* to, const void* from, std::int64_t bytes) {
    use();
    if (bytes > 0) check(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault), "copying");
  }

  // The first rank of the host prints this, once all works are bound.
  void say_graphs() {
    const std::string forms = local_rank_ == 0 ? forms_text(queues_) : std::string();
    if (!forms.empty() && forms != std::exchange(said_, forms)) log_line(forms);
  }

  int local_rank_;
  bool names_ops_, graphs_;
  bool others_ = false;  // says that queues wait for other devices
  GpuFacts gpu_;
  std::once_flag loads_driver_;
  std::optional<Driver> driver_;
  Libraries libraries_;
  OpBinder binder_;
  MemoryRanges memory_;
  Stamps stamps_;
  std::uint64_t clock_start_ = 0;
  std::string said_;  // the line about forms that was printed last
  std::vector<std::unique_ptr<CudaQueue>> queues_;
  std::optional<PowerMeter> power_;  // is made once work is to run
};

}  // namespace
}  // namespace prun::cuda

PRUN_PLUGIN(
    device, prun::cuda::CudaDevice, "cuda", "0.1.0", "One GPU of this machine",
    "also=gpu,nvidia; driver=libcuda.so.1; comm=nccl; shared=share; plan=plan_gib; plan_units=plan_units; "
    "plan_name=plan_gpu",
    "ordinal | int | none | 0..1023 | Index of the GPU among those visible to the driver; empty: the rank's "
    "number on its host\n"
    "share | bool | false | | For tests: let several ranks share a GPU; they communicate with comm ucx\n"
    "tune | bool | true | | Benchmark several algorithms for each matrix product before the first step\n"
    "attention | choice | auto | auto,cudnn,own | Kernels of attention in bf16 and fp16: cuDNN's or "
    "prun's; auto: the faster ones\n"
    "deterministic | bool | false | | Make results bitwise reproducible, at some cost in attention's "
    "backward\n"
    "logits | choice | 2GiB | 512MiB,2GiB | Maximum memory for a language model head's logits at a time; "
    "512MiB makes a step up to 0.65 % slower\n"
    "graphs | bool | true | | Launch the ops of a call as one CUDA graph where that was measured to be "
    "faster\n"
    "libraries | string | | | Folders to search first for cuBLASLt and cuDNN\n"
    "name_failed_op | bool | false | | Debugging: record which op runs, so that an error names it; slower, "
    "since CUDA graphs are off\n"
    "peak_tflops | float | 0 | 0.. | Peak TFLOP/s for the MFU column; 0: known from the GPU's name\n"
    "plan_gib | float | 0 | 0..1073741824 | Plan as if each GPU had this much memory, in GiB (to plan for "
    "another machine); 0: use what is installed\n"
    "plan_units | int | 0 | 0..1024 | On a machine without a GPU: plan for hosts with this many GPUs; 0: one "
    "GPU per host\n"
    "plan_gpu | string | | | On a machine without a GPU: model to plan for, named as by the driver or by a "
    "built-in cost table, such as NVIDIA H200 or h200\n");
