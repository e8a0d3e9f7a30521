#include "plugin_check/device_check.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "base/text.hpp"
#include "ops/registry.hpp"
#include "plugin_check/op_checks.hpp"
#include "plugin_check/tiny_recipe.hpp"
#include "prun/device.hpp"

namespace prun {
namespace {

constexpr std::int64_t count = 4096, bytes = count * 4;

struct Freed {
  void operator()(void* memory) const { std::free(memory); }
};

// Holds memory of a device, which is released, or our own where it stands for host memory that others
// allocate.
class Lent {
 public:
  Lent(DeviceInterface& device, Space space) : device_(device), space_(space) {
    if (!is_hosts()) raise(device.allocate(space, bytes, &memory_));
    if (is_hosts()) ours_.reset(memory_ = std::aligned_alloc(4096, bytes));
  }
  ~Lent() {
    if (!ours_) device_.release(space_, memory_, bytes);
  }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  void* get() const { return memory_; }
  std::vector<float> numbers() const {
    std::vector<float> numbers(count);
    if (is_hosts())
      std::memcpy(numbers.data(), memory_, bytes);
    else
      raise(device_.download(numbers.data(), memory_, bytes));
    return numbers;
  }
  void set(const std::vector<float>& numbers) {
    if (is_hosts())
      std::memcpy(memory_, numbers.data(), bytes);
    else
      raise(device_.upload(memory_, numbers.data(), bytes));
  }

 private:
  bool is_hosts() const { return space_ == Space::host; }

  DeviceInterface& device_;
  Space space_;
  void* memory_ = nullptr;
  std::unique_ptr<void, Freed> ours_;
};

void check_memory(DeviceInterface& device, Space space) {
  for (int round = 0; round < 2; ++round) {
    const Lent memory(device, space);
    if (reinterpret_cast<std::uintptr_t>(memory.get()) % 4096 != 0)
      throw_error(ErrorCode::bad_input, "allocate() gives memory that is not aligned to 4096 bytes");
    if (const std::vector<float> zeros(count, 0); memory.numbers() != zeros)
      throw_error(ErrorCode::bad_input, "allocate() gives memory that is not zero");
    std::vector<float> numbers(count);
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    raise(device.upload(memory.get(), numbers.data(), bytes));
    if (memory.numbers() != numbers)
      throw_error(ErrorCode::bad_input, "download() gives other bytes than upload() was given");
    float some[2] = {};
    raise(device.download(some, static_cast<const std::byte*>(memory.get()) + 4, sizeof some));
    if (some[0] != numbers[1] || some[1] != numbers[2])
      throw_error(ErrorCode::bad_input, "download() of some bytes in the middle gives others");
    raise(device.clear(memory.get(), bytes / 2));
    std::fill_n(numbers.begin(), count / 2, 0.0f);
    if (memory.numbers() != numbers)
      throw_error(ErrorCode::bad_input, "clear() of the first half leaves something, or clears more");
  }
}

Tensor tensor_of(const Lent& memory) {
  Tensor tensor;
  tensor.data = memory.get();
  tensor.rank = 1;
  tensor.dim[0] = count;
  return tensor;
}

// Waits until all that the queue was given has been done.
void finish(DeviceInterface& device, const DeviceInfo& info, Queue queue) {
  if (!info.asynchronous) return;
  void* memory = nullptr;
  raise(device.allocate(Space::pinned, sizeof(Counter), &memory));
  auto* const counter = new (memory) Counter(0);
  raise(device.write_counter(queue, counter, 1));
  while (counter->load() < 1) raise(device.check(queue));
  raise(device.release(Space::pinned, memory, sizeof(Counter)));
}

Kernel copy_kernel(DeviceInterface& device) {
  const KernelDef* const copy = device.kernel("copy");
  if (!copy) throw_error(ErrorCode::bad_input, "it has no kernel for op 'copy'");
  OpShape shape;
  const Dim dim{"elements", count};
  shape.count = 2;
  for (int i = 0; i < 2; ++i) shape.output(i, DType::f32, &dim, 1);
  const Kernel kernel = copy->select(shape);
  if (!kernel) throw_error(ErrorCode::bad_input, "its kernel for op 'copy' refuses fp32");
  return kernel;
}

// The launches go in two pieces.
void run_on_a_queue(DeviceInterface& device, const DeviceInfo& info, const std::vector<Launch>& launches,
                    const std::function<void()>& fill) {
  Queue queue = nullptr;
  raise(device.create_queue("trial", true, &queue));
  raise(device.attach(queue));
  std::vector<BoundWork> work(2);
  const auto half = static_cast<std::int64_t>(launches.size() / 2);
  raise(device.bind(queue, launches.data(), half, &work[0]));
  raise(device.bind(queue, launches.data() + half, static_cast<std::int64_t>(launches.size()) - half,
                    &work[1]));
  fill();  // bind() may have spoilt the numbers there
  for (BoundWork piece : work) raise(device.run(queue, piece));
  finish(device, info, queue);
  raise(device.destroy_queue(queue));
}

// Copies on from one place to the next, for a tier between memory of the host and its disk; in another order
// the last place would get nothing.
void check_order_of_queue(DeviceInterface& device, const DeviceInfo& info) {
  const Kernel kernel = copy_kernel(device);
  constexpr std::size_t places = 6;
  std::vector<std::unique_ptr<Lent>> memory;
  for (std::size_t i = 0; i < places; ++i) {
    const Space space = !info.tier ? Space::device : i % 2 == 0 ? Space::host : Space::disk;
    memory.push_back(std::make_unique<Lent>(device, space));
  }
  Tensor operands[places - 1][2];
  std::vector<Launch> launches(places - 1);
  for (std::size_t i = 0; i + 1 < places; ++i) {
    operands[i][0] = tensor_of(*memory[i]);
    operands[i][1] = tensor_of(*memory[i + 1]);
    launches[i].kernel = kernel;
    launches[i].op = "copy";
    launches[i].args.operands = operands[i];
    launches[i].args.operand_count = 2;
    launches[i].args.changes = 2;
  }
  const std::vector<float> numbers(count, 3.0f), zeros(count, 0.0f);
  run_on_a_queue(device, info, launches, [&] {
    for (std::size_t i = 0; i < places; ++i) memory[i]->set(i == 0 ? numbers : zeros);
  });
  if (memory.back()->numbers() != numbers)
    throw_error(ErrorCode::bad_input,
                "a queue was given copies from each place to the next, and the last place "
                "has not what the first had: work must run in the order it was given");
}

// Writes and reads a tier so often that damage shows which comes seldom.
void check_many_writes(DeviceInterface& device, const DeviceInfo& info) {
  constexpr int most = 5000;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  Lent from(device, Space::host), there(device, Space::disk), back(device, Space::host);
  Tensor operands[2][2] = {{tensor_of(from), tensor_of(there)}, {tensor_of(there), tensor_of(back)}};
  Queue queue = nullptr;
  raise(device.create_queue("trial", true, &queue));
  raise(device.attach(queue));
  BoundWork work[2];
  for (int i = 0; i < 2; ++i) {
    Launch launch;
    launch.kernel = copy_kernel(device);
    launch.op = "copy";
    launch.args.operands = operands[i];
    launch.args.operand_count = 2;
    launch.args.changes = 2;
    raise(device.bind(queue, &launch, 1, &work[i]));
  }
  std::vector<float> numbers(count);
  for (int round = 0; round < most && std::chrono::steady_clock::now() < end; ++round) {
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<float>(round) + static_cast<float>(i);
    from.set(numbers);
    for (BoundWork one : work) raise(device.run(queue, one));
    finish(device, info, queue);
    if (back.numbers() != numbers)
      throw_error(ErrorCode::bad_input, "write ", round + 1, " of ", bytes,
                  " bytes is read back as other bytes");
  }
  raise(device.destroy_queue(queue));
}

int check_kernels(DeviceInterface& device) {
  int found = 0;
  for (const std::string& op : OpRegistry().kinds()) {
    const KernelDef* const kernel = device.kernel(std::string_view(op));
    if (!kernel) continue;
    ++found;
    if (!kernel->select || !kernel->op || op != kernel->op)
      throw_error(ErrorCode::bad_input, "kernel(\"", op,
                  "\") gives one that cannot be chosen or is of another op");
  }
  return found;
}

// Says why the device cannot be used here; it is empty where it can.
std::string hindrance(DeviceInterface& device) {
  DeviceInfo info;
  if (const Status status = device.info(&info); !status.ok()) return std::string(status.message);
  if (info.tier) return "it is a tier";
  if (info.absent) return "it is not on this machine";
  void* memory = nullptr;
  if (const Status status = device.allocate(Space::device, bytes, &memory); !status.ok())
    return std::string(status.message);
  raise(device.release(Space::device, memory, bytes));
  return "";
}

std::string kind_of(DeviceInterface& device) {
  DeviceInfo info;
  return device.info(&info).ok() ? std::string(info.kind.view()) : "";
}

// Returns a device of that kind that can be used here, or null and why not.
std::shared_ptr<DeviceInterface> find_device(const std::vector<SearchPlace>& places, const std::string& kind,
                                             std::string& why) {
  why = "there is no device plugin of that kind";
  PluginHost plugins(places);
  for (const std::string& name : plugin_names(places, "device")) try {
      const DefaultOptions options = default_options(trial_schema(plugins.note("device", name), ""));
      auto device = plugins.create<DeviceInterface>("device", name, options.api);
      if (kind_of(*device) != kind) continue;
      why = hindrance(*device);
      if (why.empty()) return device;
    } catch (const Error&) {  // one that cannot be used is not the device that is looked for
    }
  return nullptr;
}

}  // namespace

CheckFinding check_device_kernels(const TriedPlugin& plugin, const std::vector<SearchPlace>& places) {
  auto& device = *static_cast<DeviceInterface*>(plugin.object);
  if (DeviceInfo info; device.info(&info).ok() && info.tier) return {"a tier computes nothing"};
  if (const std::string why = hindrance(device); !why.empty()) return {"not checked: " + why, false};
  const CpuKernels cpu(places);
  const bool is_cpu = kind_of(device) == "cpu";
  const OpsOnTrial trial = builtin_ops_on_trial(is_cpu ? kernels_of(device) : cpu.kernels(), plugin.doing);
  if (is_cpu) check_memory(trial), check_threads(trial);
  return check_on_device(trial, device, kernels_of(device));
}

CheckFinding check_kernels_elsewhere(const TriedPlugin& plugin, const std::vector<SearchPlace>& others) {
  auto& ops = *static_cast<OpPluginInterface*>(plugin.object);
  const CpuKernels cpu(others);
  Array<DeviceKernel> kernels;
  raise(ops.kernels(&kernels));
  std::set<std::string> kinds;
  for (const DeviceKernel& kernel : kernels) kinds.insert(kernel.device);
  kinds.erase("cpu");
  if (kinds.empty()) return {"it has kernels for the CPU alone"};
  std::vector<SearchPlace> places = {{plugin.path.parent_path(), "the plugin's folder"}};
  places.insert(places.end(), others.begin(), others.end());
  std::vector<std::string> said;
  bool checked = false;
  for (const std::string& kind : kinds) {
    std::string why;
    const std::shared_ptr<DeviceInterface> device = find_device(places, kind, why);
    if (!device) {
      said.push_back(detail::concat("not checked: kernels for '", kind, "', since ", why));
      continue;
    }
    const auto there = [&](std::string_view op) -> const KernelDef* {
      for (const DeviceKernel& own : kernels)
        if (kind == own.device && op == own.kernel.op) return &own.kernel;
      return nullptr;
    };
    const OpsOnTrial trial = ops_of(ops, plugin.note.name, cpu.kernels(), plugin.doing);
    said.push_back(kind + ": " + check_on_device(trial, *device, there).detail);
    checked = true;
  }
  return {join(said, "; "), checked};
}

CheckFinding check_device(const TriedPlugin& plugin) {
  auto& device = *static_cast<DeviceInterface*>(plugin.object);
  plugin.doing("info()");
  DeviceInfo info;
  if (const Status status = device.info(&info); !status.ok())
    return {
        detail::concat("not checked, since it cannot be used here with default options: ", status.message),
        false};
  if (info.kind.size == 0 || info.threads < 1)
    throw_error(ErrorCode::bad_input, "info() names no kind, or says ", info.threads, " threads");
  plugin.doing("kernel()");
  const int kernels = check_kernels(device);
  plugin.doing("allocate()");
  const Space space = info.tier ? Space::disk : Space::device;
  void* memory = nullptr;
  if (const Status status = device.allocate(space, bytes, &memory); !status.ok())
    return {detail::concat("not checked: memory and queues, since it cannot be used here: ", status.message),
            false};
  raise(device.release(space, memory, bytes));
  check_memory(device, space);
  plugin.doing("run()");
  check_order_of_queue(device, info);
  if (info.tier) check_many_writes(device, info);
  return {detail::concat(kernels, " of prun's ops have kernels")};
}

}  // namespace prun
