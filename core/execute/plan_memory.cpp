#include "execute/plan_memory.hpp"

namespace prun {
namespace {

constexpr std::int64_t alignment = 4096;  // of what a device allocates

}  // namespace

PlanMemory::PlanMemory(const Program& program, const Plan& plan, DeviceInterface& device, bool fenced)
    : program_(program), plan_(plan), device_(device), fence_(fenced ? alignment : 0) {
  for (const Space space : {Space::device, Space::pinned}) {
    void* memory = nullptr;
    const Status status = device_.allocate(space, bytes_of(space), &memory);
    if (!status.ok() && space == Space::pinned)
      device_.release(Space::device, base_[0] - fence_, bytes_of(Space::device));
    raise(status);
    base_[static_cast<int>(space)] = static_cast<std::byte*>(memory) + fence_of(space);
  }
}

PlanMemory::~PlanMemory() {
  for (const Space space : {Space::device, Space::pinned})
    device_.release(space, base_[static_cast<int>(space)] - fence_of(space), bytes_of(space));
}

void PlanMemory::clear() const { raise(device_.clear(base_[0], plan_.layout.bytes_in(Space::device))); }

std::array<std::span<std::byte>, 2> PlanMemory::fences() const {
  const auto size = static_cast<std::size_t>(fence_);
  return {std::span(base_[0] - fence_, size),
          std::span(base_[0] + plan_.layout.bytes_in(Space::device), size)};
}

std::byte* PlanMemory::at(std::int64_t offset) const {
  const std::int64_t border = plan_.layout.pinned;
  return offset < border ? base_[0] + offset : base_[1] + (offset - border);
}

std::byte* PlanMemory::lasting(Id value, std::int32_t instance) const {
  return at(plan_.resolve(instance, plan_.home(value)));
}

void PlanMemory::read(Id value, std::int32_t instance, std::int64_t first, std::span<std::byte> to) const {
  raise(device_.download(to.data(), lasting(value, instance) + first, static_cast<std::int64_t>(to.size())));
}

void PlanMemory::write(Id value, std::int32_t instance, std::int64_t first,
                       std::span<const std::byte> from) const {
  raise(
      device_.upload(lasting(value, instance) + first, from.data(), static_cast<std::int64_t>(from.size())));
}

std::byte* PlanMemory::staged(Id id, std::int64_t step, std::int64_t microbatch) const {
  PRUN_CHECK(program_.value(id).role == Role::staging, "value '", program_.value(id).name, "' is not staged");
  Call call;
  call.microbatch = static_cast<std::int32_t>(microbatch);
  return at(plan_.resolve(call, plan_.home(id), static_cast<int>(step % 2)));
}

}  // namespace prun
