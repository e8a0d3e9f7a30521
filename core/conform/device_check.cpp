#include "conform/device_check.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/registry.hpp"
#include "prun/device.hpp"

namespace prun {
namespace {

constexpr std::int64_t count = 4096, bytes = count * 4;

// Memory of a device that is given back.
class Lent {
 public:
  Lent(DeviceInterface& device, Space space) : device_(device), space_(space) {
    raise(device.allocate(space, bytes, &memory_));
  }
  ~Lent() { device_.release(space_, memory_, bytes); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;

  void* get() const { return memory_; }
  std::vector<float> numbers() const {
    std::vector<float> numbers(count);
    raise(device_.download(numbers.data(), memory_, bytes));
    return numbers;
  }

 private:
  DeviceInterface& device_;
  Space space_;
  void* memory_ = nullptr;
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

// What the queue was given has been done when this returns.
void finish(DeviceInterface& device, const DeviceInfo& info, Queue queue) {
  if (!info.asynchronous) return;
  void* memory = nullptr;
  raise(device.allocate(Space::pinned, sizeof(Counter), &memory));
  auto* const counter = new (memory) Counter(0);
  raise(device.write_counter(queue, counter, 1));
  while (counter->load() < 1) raise(device.check(queue));
  raise(device.release(Space::pinned, memory, sizeof(Counter)));
}

// Copies on from one place to the next; in another order the last would get nothing.
void check_order_of_queue(DeviceInterface& device, const DeviceInfo& info) {
  const KernelDef* const copy = device.kernel("copy");
  if (!copy) throw_error(ErrorCode::bad_input, "it has no kernel for op 'copy'");
  constexpr std::size_t places = 6;
  std::vector<std::unique_ptr<Lent>> memory;
  for (std::size_t i = 0; i < places; ++i) memory.push_back(std::make_unique<Lent>(device, Space::device));
  std::vector<float> numbers(count, 3.0f);
  raise(device.upload(memory[0]->get(), numbers.data(), bytes));
  OpShape shape;
  const Dim dim{"elements", count};
  shape.count = 2;
  for (int i = 0; i < 2; ++i) shape.output(i, DType::f32, &dim, 1);
  const Kernel kernel = copy->select(shape);
  if (!kernel) throw_error(ErrorCode::bad_input, "its kernel for op 'copy' refuses fp32");
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
  Queue queue = nullptr;
  raise(device.create_queue("trial", true, &queue));
  raise(device.attach(queue));
  std::vector<BoundWork> work(2);
  const auto half = static_cast<std::int64_t>(launches.size() / 2);
  raise(device.bind(queue, launches.data(), half, &work[0]));
  raise(device.bind(queue, launches.data() + half, static_cast<std::int64_t>(launches.size()) - half,
                    &work[1]));
  raise(device.upload(memory[0]->get(), numbers.data(), bytes));
  for (std::size_t i = 1; i < places; ++i) raise(device.clear(memory[i]->get(), bytes));
  for (BoundWork piece : work) raise(device.run(queue, piece));
  finish(device, info, queue);
  const bool arrived = memory.back()->numbers() == numbers;
  raise(device.destroy_queue(queue));
  if (!arrived)
    throw_error(ErrorCode::bad_input,
                "a queue was given copies from each place to the next, and the last place "
                "has not what the first had: work must run in the order it was given");
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

}  // namespace

Finding check_device(const TriedPlugin& plugin) {
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
  if (info.tier) return {"not checked: queues of a tier"};
  plugin.doing("run()");
  check_order_of_queue(device, info);
  return {detail::concat(kernels, " of prun's ops have kernels")};
}

}  // namespace prun
