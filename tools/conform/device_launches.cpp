#include "conform/device_launches.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "execute/side_queue.hpp"

namespace prun {
namespace {

// Returns how far results may differ after sums in another order, relative to the largest number: the
// coarsest type among the operands decides.
double tolerance_of(const KernelCall& call) {
  double tolerance = 0;
  for (const TrialOperand& operand : call.operands) {
    if (!operand.shape.present) continue;
    const DType type = operand.shape.dtype;
    tolerance = std::max(tolerance, type == DType::bf16  ? 3e-2
                                    : type == DType::f16 ? 4e-3
                                    : type == DType::f32 ? 1e-4
                                    : type == DType::f64 ? 1e-9
                                                         : 0);
  }
  return tolerance;
}

// Results are NaN before, so that no kernel adds to them or leaves some as they were.
std::vector<std::byte> bytes_before(const KernelCall& call, std::size_t i) {
  const std::vector<std::byte>& bytes = call.operands[i].bytes;
  return holds_nothing(call, i) ? std::vector(bytes.size(), static_cast<std::byte>(LaunchManner().filling))
                                : bytes;
}

std::int64_t room(std::int64_t bytes) { return std::max<std::int64_t>(bytes, 1); }

}  // namespace

DeviceLaunches::DeviceLaunches(DeviceInterface& device) : device_(device) {
  raise(device.info(&info_));
  const DeviceMemory there_is_some(device, Space::device, 4096);
}

void DeviceLaunches::compare(const KernelDef& there, const KernelDef& on_cpu, const KernelCall& call) {
  compare(call, launch(there, call), prun::launch(on_cpu, call, {}), "");
  if (const auto sums = begun_sums(there, call))
    compare(call, launch(there, sums->begun), prun::launch(on_cpu, sums->added, {}),
            " as it begins the sum (writes_first)");
}

void DeviceLaunches::compare(const KernelCall& call, const std::vector<TrialOperand>& got,
                             const std::vector<TrialOperand>& want, const char* when) const {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!want[i].shape.present || call.def->operands[i].access == Access::read) continue;
    double largest = 0;
    for (std::size_t e = 0; e < want[i].elements(); ++e)
      largest = std::max(largest, std::abs(want[i].number(e)));
    const double tolerance = is_real(want[i].shape.dtype) ? tolerance_of(call) * largest : 0;
    for (std::size_t e = 0; e < want[i].elements(); ++e)
      if (!(std::abs(got[i].number(e) - want[i].number(e)) <= tolerance))
        throw_error(ErrorCode::bad_input, "the kernel of ", operand_text(*call.def, i), " gives ",
                    got[i].number(e), " in element ", e, " in ", name_of(want[i].shape.dtype), " on '",
                    info_.name.view(), "'", when, ", and the CPU ", want[i].number(e));
  }
}

std::vector<TrialOperand> DeviceLaunches::launch(const KernelDef& kernel, const KernelCall& call) {
  const OpShape shape = call.shape();
  Launch launch;
  launch.kernel = kernel.select(shape);
  if (!launch.kernel)
    throw_error(ErrorCode::unsupported, "'", info_.name.view(), "' has no kernel for these types and shapes");
  const std::int64_t workspace_bytes = kernel.workspace ? kernel.workspace(shape, info_.threads) : 0;
  const DeviceMemory workspace(device_, Space::device, room(workspace_bytes));
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  std::vector<Tensor> tensors(call.operands.size());
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    const TrialOperand& operand = call.operands[i];
    memory.push_back(std::make_unique<DeviceMemory>(device_, Space::device, room(operand.shape.bytes())));
    if (operand.shape.present) tensors[i] = tensor_of(operand, memory.back()->data());
    if (call.def->operands[i].access != Access::read) launch.args.changes |= 1u << i;
  }
  launch.op = call.def->kind;
  launch.args.operands = tensors.data();
  launch.args.operand_count = static_cast<std::int32_t>(tensors.size());
  launch.args.attrs = call.attrs.data();
  launch.args.workspace = workspace.data();
  launch.args.workspace_bytes = workspace_bytes;
  launch.args.first = call.begins;
  SideQueue queue(device_, "trial", true);  // is destroyed first, with the work bound to the memory
  queue.attach();
  BoundWork work = nullptr;
  raise(device_.bind(queue.handle(), &launch, 1, &work));
  for (std::size_t i = 0; i < memory.size(); ++i) {  // bind() may have spoilt it
    const std::vector<std::byte> bytes = bytes_before(call, i);
    raise(device_.upload(memory[i]->data(), bytes.data(), call.operands[i].shape.bytes()));
  }
  raise(device_.run(queue.handle(), work));
  queue.await();
  std::vector<TrialOperand> after = call.operands;
  for (std::size_t i = 0; i < memory.size(); ++i)
    raise(device_.download(after[i].bytes.data(), memory[i]->data(), call.operands[i].shape.bytes()));
  return after;
}

}  // namespace prun
