// The device `cuda`: one GPU, fed by one thread through streams.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "attention_fusion.hpp"
#include "cuda/stamp.hpp"
#include "driver.hpp"
#include "examine.hpp"
#include "experts_fusion.hpp"
#include "gpu_memory.hpp"
#include "gradient_fusion.hpp"
#include "host/numa.hpp"
#include "libraries.hpp"
#include "power_meter.hpp"
#include "prun/plugin.hpp"
#include "queue.hpp"
#include "sharers.hpp"

namespace prun::cuda {
namespace {

// Dense bf16 peak, where it is known by the name of the GPU.
double peak_of(const std::string& gpu) {
  for (const auto& [name, peak] : {std::pair{"H200", 989e12},
                                   {"H100 PCIe", 756e12},
                                   {"H100", 989e12},
                                   {"B200", 2250e12},
                                   {"A100", 312e12}})
    if (gpu.find(name) != std::string::npos) return peak;
  return 0;
}

std::string cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) return std::string(cache) + "/prun";
  const char* home = std::getenv("HOME");
  return home && *home ? std::string(home) + "/.cache/prun" : std::string();
}

// Ranks that tune must find what the others have found; without a file for that they take what the library
// names first.
bool can_agree(int local_ranks) { return local_ranks == 1 || !cache_folder().empty(); }

// Before the driver is first asked for anything: kernels are loaded when they are bound, not all of those
// that libraries bring; and streams that may wait for each other get channels of their own, for kernels and
// for copies: behind a copy that waits in a channel, one of another stream that it waits for would never
// begin.
void set_environment() {
  setenv("CUDA_MODULE_LOADING", "LAZY", 0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "32", 0);
}

// Context, kernels and libraries: a little more than was measured of any recipe (docs/benchmarks.md).
constexpr std::int64_t process_bytes = std::int64_t{896} << 20,
                       process_device_bytes = std::int64_t{608} << 20;
// Pieces of work that a queue takes before it holds whoever feeds it: one or two commands each, on average.
constexpr std::int64_t queue_depth = Room::most / 2;

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const Options& options)
      : chosen_(options.has("ordinal")),
        shares_(options.flag("share")),
        local_rank_(options.local_rank()),
        local_ranks_(options.local_ranks()),
        ordinal_(chosen_ ? static_cast<int>(options.integer("ordinal")) : local_rank_),
        waits_(options.flag("wait_after_each_op")),
        graphs_(options.flag("graphs")),
        planned_bytes_(static_cast<std::int64_t>(options.number("plan_gib") * (1 << 30))),
        planned_units_(static_cast<int>(options.integer("plan_units"))),
        planned_gpu_(options.text("plan_gpu")),
        libraries_({options.text("libraries"), options.flag("tune") && can_agree(local_ranks_),
                    options.flag("deterministic"), options.text("attention"), cache_folder()}) {
    set_environment();
    add(all_device_ops({.deterministic = options.flag("deterministic")}));
    describe(options.number("peak_tflops") * 1e12);
  }

  DeviceInfo info() override {
    DeviceInfo info;
    info.name = name_;
    info.kind = "cuda";
    info.arithmetic = arithmetic_;
    info.memory_bytes = memory_bytes_;
    info.absent = absent_;
    info.process_bytes = process_bytes;
    info.process_device_bytes = process_device_bytes;
    info.queue_depth = queue_depth;
    info.peak_flops = peak_flops_;
    info.asynchronous = true;
    info.one_process_each = true;  // its calls may wait for another GPU's of the process
    info.unit = unit_;
    info.units = units_;
    return info;
  }

  void* allocate(Space space, std::int64_t bytes) override {
    use();
    stay_near();
    const std::scoped_lock lock(mutex_);
    if (space == Space::device) {
      auto range = std::make_unique<DeviceRange>(driver(), ordinal_, bytes);
      void* at = range->data();
      device_ranges_[at] = std::move(range);
      return at;
    }
    auto range = std::make_unique<PinnedRange>(bytes);
    void* at = range->data();
    if (local_rank_ == 0 && !range->note().empty()) log_line(range->note());
    pinned_ranges_[at] = std::move(range);
    return at;
  }
  void release(Space space, void* memory, std::int64_t) override {
    use();
    const std::scoped_lock lock(mutex_);
    if (space == Space::device)
      device_ranges_.erase(memory);
    else
      pinned_ranges_.erase(memory);
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
  std::string examine() override { return examine_gpus(); }

  std::int64_t memory_in_use() override {
    use();
    std::size_t free = 0, all = 0;
    check(cudaMemGetInfo(&free, &all), "asking for free memory");
    return static_cast<std::int64_t>(all - free);
  }

  const KernelDef* kernel(std::string_view op) override {
    const auto found = ops_.find(op);
    return found == ops_.end() ? nullptr : &found->second.def;
  }

  void lower(ProgramRef program) override {
    fuse_packed_attention(program);
    fuse_residual_gradients(program);
    fuse_expert_gradients(program);
    fuse_gelu_gradients(program);
  }

  Queue create_queue(std::string_view name, bool workers) override {
    use();
    if (!power_) power_.emplace(ordinal_);
    return queues_
        .emplace_back(std::make_unique<CudaQueue>(
            std::string(name), CudaQueue::Settings{!workers, waits_, graphs_, others_}, driver()))
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
  // With graphs, a copy that a thread asks for was seen to stand still behind what waits in a pipeline's
  // queue, whatever the graphs were made of; without them never.
  void waits_for_others(bool copied_by_threads) override {
    others_ = true;
    if (copied_by_threads && std::exchange(graphs_, false) && local_rank_ == 0)
      log_line(
          "no CUDA graphs are used where a comm plugin's exchanges are copied through the host's memory");
  }
  DeviceMeter meter() override { return power_ ? power_->read(sharers_) : DeviceMeter{}; }
  void make_current() override { use(); }
  void attach(Queue) override {
    use();
    say_graphs();
  }

  BoundWork bind(Queue queue, const Launch* launches, std::int64_t count) override {
    use();
    std::vector<NamedWork> works;
    for (Launches left(launches, static_cast<std::size_t>(count)); !left.empty();)
      left = left.subspan(bind_first(of(queue), left, works));
    check(cudaStreamSynchronize(of(queue).stream()), "trying work");
    return &of(queue).add(std::move(works));
  }
  void run(Queue queue, BoundWork work) override { of(queue).run(*static_cast<const Piece*>(work)); }

  void* stream(Queue queue) override { return of(queue).stream(); }
  QueueEvent create_event() override {
    use();
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    return event;
  }
  void destroy_event(QueueEvent event) override { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }
  void record(Queue queue, QueueEvent event) override {
    of(queue).make_room(1);
    check(cudaEventRecord(static_cast<cudaEvent_t>(event), of(queue).stream()), "recording an event");
  }
  void wait(Queue queue, QueueEvent event) override {
    of(queue).make_room(1);
    check(cudaStreamWaitEvent(of(queue).stream(), static_cast<cudaEvent_t>(event), 0),
          "waiting for an event");
  }
  void write_counter(Queue queue, Counter* counter, std::uint64_t value) override {
    of(queue).make_room(1);
    driver().check(driver().write_value(of(queue).stream(), reinterpret_cast<CUdeviceptr>(counter), value,
                                        CU_STREAM_WRITE_VALUE_DEFAULT),
                   "writing a counter");
  }
  void wait_counter(Queue queue, const Counter* counter, std::uint64_t value) override {
    of(queue).make_room(1);
    driver().check(driver().wait_value(of(queue).stream(), reinterpret_cast<CUdeviceptr>(counter), value,
                                       CU_STREAM_WAIT_VALUE_GEQ),
                   "waiting for a counter");
  }

  // A number in pinned memory.
  Stamp create_stamp() override {
    use();
    constexpr std::int64_t page = 4096;
    if (free_stamps_.empty()) {
      auto* first = static_cast<std::uint64_t*>(stamp_pages_.emplace_back(page).data());
      for (std::int64_t i = 0; i < page / 8; ++i) free_stamps_.push_back(first + i);
      write_time(first, nullptr);  // loads its kernel
      check(cudaDeviceSynchronize(), "trying a stamp");
    }
    std::uint64_t* const stamp = free_stamps_.back();
    free_stamps_.pop_back();
    return stamp;
  }
  void destroy_stamp(Stamp stamp) override { free_stamps_.push_back(static_cast<std::uint64_t*>(stamp)); }
  void stamp(Queue queue, Stamp stamp) override {
    of(queue).make_room(1);
    write_time(static_cast<std::uint64_t*>(stamp), of(queue).stream());
  }
  double read(Stamp stamp) override {
    return 1e-9 * static_cast<double>(*static_cast<const volatile std::uint64_t*>(stamp) - clock_start_);
  }
  void check(Queue queue) override { of(queue).check(); }

 private:
  void add(std::vector<DeviceOp> family) {
    for (DeviceOp& op : family) {
      const std::string name = op.def.op;
      PRUN_CHECK(ops_.emplace(name, std::move(op)).second, "two kernels for op ", name);
    }
  }

  static CudaQueue& of(Queue queue) { return *static_cast<CudaQueue*>(queue); }
  static void check(cudaError_t status, const char* what) { cuda::check(status, what); }

  // What is known without a GPU is that there is none.
  void describe(double peak) {
    int count = 0;
    cudaDeviceProp gpu{};
    if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess || count == 0) {
      name_ = "cuda: " + (planned_gpu_.empty() ? why_none(status) : planned_gpu_ + ", which is not here");
      absent_ = true;
      memory_bytes_ = std::int64_t{1} << 50;  // not known
      if (!shares_) units_ = planned_units_;
    } else {
      choose_among(count);
      check(cudaGetDeviceProperties(&gpu, ordinal_), "properties");
      if (!shares_) {
        unit_ = "GPU " + hex_of(gpu.uuid.bytes);
        units_ = count;
      }
      sharers_ = shares_ ? sharers_of(local_ranks_, count, chosen_) : 1;
      name_ = "cuda: " + name_of(gpu.name, sharers_) + ", " + libraries_.versions();
      arithmetic_ = std::string("gpu = \"") + gpu.name + "\"";
      memory_bytes_ = static_cast<std::int64_t>(gpu.totalGlobalMem) / sharers_;
    }
    if (planned_bytes_ > 0) memory_bytes_ = planned_bytes_ / sharers_;
    peak_flops_ = (peak > 0 ? peak : peak_of(name_)) / sharers_;
  }

  static std::string why_none(cudaError_t status) {
    int driver = 0;
    if (status != cudaErrorInsufficientDriver || cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
      return "no GPU here";
    const auto text = [](int version) {
      return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    };
    return "the driver here is for CUDA " + text(driver) + ", too old for " + text(CUDART_VERSION) +
           "; install a newer driver";
  }

  // Where each rank is shown one GPU, that is its own.
  void choose_among(int count) {
    if (!chosen_ && (shares_ || count == 1)) ordinal_ = local_rank_ % count;
    if (!chosen_ && !shares_ && count > 1 && local_ranks_ > count)
      throw_error(ErrorCode::bad_input, "rank ", local_rank_, " of ", local_ranks_,
                  " on this host, where it sees ", count, " GPUs; start at most one rank a GPU");
    if (ordinal_ >= count)
      throw_error(ErrorCode::bad_input, "device.ordinal = ", ordinal_, ": there are ", count,
                  " GPUs here, counted from 0");
  }

  static std::string hex_of(const char (&bytes)[16]) {
    std::string text;
    for (const char byte : bytes)
      for (const int shift : {4, 0})
        text += "0123456789abcdef"[(static_cast<unsigned char>(byte) >> shift) & 15];
    return text;
  }

  // Host memory of this process is that of one GPU, whichever device gives it: a plan's first range is this
  // one's.
  void stay_near() const {
    char address[32] = {};
    if (cudaDeviceGetPCIBusId(address, sizeof address, ordinal_) == cudaSuccess)
      host::prefer_numa_node(host::numa_node_of(address));
  }

  // Makes the GPU the calling thread's.
  void use() {
    const cudaError_t status = cudaSetDevice(ordinal_);
    if (status == cudaErrorNoDevice || status == cudaErrorInsufficientDriver)
      throw_error(ErrorCode::unsupported, "device cuda: ", cudaGetErrorString(status),
                  "; use device.plugin = \"cpu\", or a machine with a GPU and its driver");
    check(status, "cudaSetDevice");
  }

  const Driver& driver() {
    if (!driver_) driver_.emplace(load_driver());
    return *driver_;
  }

  void transfer(void* to, const void* from, std::int64_t bytes) {
    use();
    if (bytes > 0) check(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault), "copying");
  }

  // Said by the first rank of the host, once all is bound.
  void say_graphs() {
    const std::string forms = local_rank_ == 0 ? forms_text(queues_) : std::string();
    if (!forms.empty() && forms != std::exchange(said_, forms)) log_line(forms);
  }

  // Makes one piece of work of these launches, from the first on. Returns of how many.
  std::size_t bind_first(CudaQueue& queue, Launches left, std::vector<NamedWork>& works) {
    for (const Fusion& fusion : fusions_)
      if (const std::size_t count = fusion.matches(left)) try {
          const auto bind = [this, &fusion, &queue](Launches some) {
            return fusion.bind(some, libraries_, queue.stream());
          };
          const std::string name = std::string(left[0].op.view()) + " + " + std::string(left[1].op.view());
          works.push_back(named_work(name, left.first(count), bind));
          return count;
        } catch (const Error& error) {
          if (error.code() != ErrorCode::unsupported) throw;
        }
    const Launches together = left.first(mergeable(left));
    works.push_back(bind_work(queue, together));
    return together.size();
  }

  // How many of these, from the first on, become one piece of work.
  std::size_t mergeable(Launches launches) const {
    const auto op = ops_.find(launches.front().op.view());
    if (launches.front().kernel != runs_when_bound || !op->second.merges) return 1;
    std::size_t n = 1;
    while (n < launches.size() && launches[n].op.view() == launches.front().op.view() &&
           op->second.merges(launches.front(), launches[n]))
      ++n;
    return n;
  }

  NamedWork bind_work(CudaQueue& queue, Launches launches) {
    const std::string name(launches.front().op.view());
    PRUN_CHECK(launches.front().kernel, "op ", name);
    if (launches.front().kernel != runs_when_bound)
      return named_work(name, launches, [](Launches one) -> Work {
        return [kernel = one.front().kernel, args = one.front().args](Stream stream) {
          kernel(args, {nullptr, stream});
        };
      });
    const DeviceOp& op = ops_.at(name);
    return named_work(name, launches, [this, &op, &queue](Launches some) {
      return op.bind(some, libraries_, queue.stream());
    });
  }

  template <class Bind>
  NamedWork named_work(std::string name, Launches launches, Bind bind) const {
    NamedWork named{std::move(name), launches.front().args.layer, bind(launches)};
    named.captures = named.work.captures();
    named.kind = kind_of(launches);
    named.touches = touches_of(launches, true);
    if (!adds_to_sums(launches)) return named;
    named.own_touches = touches_of(launches, false);
    named.bind_to = [bind, launches](void* workspace) {
      std::vector<Launch> moved(launches.begin(), launches.end());
      for (Launch& launch : moved)
        if (launch.args.workspace) launch.args.workspace = workspace;
      return bind(moved);
    };
    return named;
  }

  // Rather than make what later works need; and there is workspace for it elsewhere.
  bool adds_to_sums(Launches launches) const {
    return std::ranges::all_of(launches, [&](const Launch& launch) {
      return ops_.find(launch.op.view())->second.def.writes_first != 0 &&
             launch.args.workspace_bytes <= CudaQueue::side_workspace_bytes;
    });
  }

  bool chosen_;  // by the recipe
  bool shares_;
  int local_rank_, local_ranks_;
  int ordinal_;
  bool waits_, graphs_;
  bool others_ = false;  // are waited for
  std::int64_t planned_bytes_;
  int planned_units_;
  std::string planned_gpu_;
  std::string name_, arithmetic_, unit_;
  int units_ = 0;
  std::int64_t memory_bytes_ = 0;
  bool absent_ = false;
  int sharers_ = 1;
  double peak_flops_ = 0;
  std::optional<Driver> driver_;
  Libraries libraries_;
  std::map<std::string, DeviceOp, std::less<>> ops_;
  std::vector<Fusion> fusions_ = fusions();
  std::mutex mutex_;
  std::unordered_map<void*, std::unique_ptr<DeviceRange>> device_ranges_;
  std::unordered_map<void*, std::unique_ptr<PinnedRange>> pinned_ranges_;
  std::deque<PinnedRange> stamp_pages_;
  std::vector<std::uint64_t*> free_stamps_;
  std::uint64_t clock_start_ = 0;
  std::string said_;  // of forms
  std::vector<std::unique_ptr<CudaQueue>> queues_;
  std::optional<PowerMeter> power_;  // once something is to run
};

}  // namespace
}  // namespace prun::cuda

PRUN_PLUGIN(
    device, prun::cuda::CudaDevice, "cuda", "0.1.0", "One GPU of this machine",
    "also=gpu,nvidia; driver=libcuda.so.1; comm=nccl; shared=share; plan=plan_gib; plan_units=plan_units; "
    "plan_name=plan_gpu",
    "ordinal | int | none | 0..1023 | Which GPU, as the driver counts those that are visible; empty: each "
    "rank "
    "the one of its number on the host\n"
    "share | bool | false | | For tests: several ranks may have one GPU; comm ucx carries their traffic\n"
    "tune | bool | true | | Try several algorithms for each matrix product before the first step\n"
    "attention | choice | auto | auto,cudnn,own | Kernels of bf16 attention; auto: the faster\n"
    "deterministic | bool | false | | The same bits every time, at some cost in attention's gradient\n"
    "graphs | bool | true | | Launch the ops of a call as one CUDA graph where that was seen to be faster\n"
    "libraries | string | | | Folders where cuBLASLt and cuDNN are looked for first\n"
    "wait_after_each_op | bool | false | | Slow: an error then names the op\n"
    "peak_tflops | float | 0 | 0.. | Peak in TFLOP/s for the MFU column; 0: known by the GPU's name\n"
    "plan_gib | float | 0 | 0..1073741824 | GiB of a GPU that plans count on, as for another machine; 0: "
    "what "
    "this one has\n"
    "plan_units | int | 0 | 0..1024 | GPUs of a host that plans count on where there is none here; 0: one, "
    "so "
    "that each rank has a host of its own\n"
    "plan_gpu | string | | | GPU that plans are for where there is none here, as the driver calls it or a "
    "cost table that comes with prun: NVIDIA H200, h200\n");
