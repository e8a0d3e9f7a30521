// Holds the template of a device, which works on any machine.
#include "conform/scaffold_templates.hpp"

namespace prun {

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

}  // namespace prun
