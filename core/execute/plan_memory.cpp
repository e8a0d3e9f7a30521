#include "execute/plan_memory.hpp"

namespace prun {

PlanMemory::PlanMemory(const Program& program, const Plan& plan, DeviceInterface& device)
    : program_(program), plan_(plan), device_(device) {
  for (int space = 0; space < spaces; ++space) {
    void* memory = nullptr;
    const Status status = device_.allocate(static_cast<Space>(space),
                                           plan_.layout.bytes_in(static_cast<Space>(space)), &memory);
    if (!status.ok() && space > 0)
      device_.release(Space::device, base_[0], plan_.layout.bytes_in(Space::device));
    raise(status);
    base_[space] = static_cast<std::byte*>(memory);
  }
}

PlanMemory::~PlanMemory() {
  for (int space = 0; space < spaces; ++space)
    device_.release(static_cast<Space>(space), base_[space],
                    plan_.layout.bytes_in(static_cast<Space>(space)));
}

std::byte* PlanMemory::at(std::int64_t offset) const {
  const std::int64_t border = plan_.layout.pinned;
  return offset < border ? base_[0] + offset : base_[1] + (offset - border);
}

std::byte* PlanMemory::lasting(Id id, std::int32_t instance) const {
  const Value& value = program_.value(id);
  Role role = value.role;
  if (role == Role::view) {
    const Bucket& bucket = program_.buckets()[static_cast<std::size_t>(value.bucket)];
    role = id == bucket.all_parameters || id == bucket.own_parameters ? Role::parameter : Role::gradient;
  }
  PRUN_CHECK(role == Role::parameter || role == Role::gradient || role == Role::state, "value '", value.name,
             "' is not persistent");
  const Region region = role == Role::parameter  ? Region::parameter
                        : role == Role::gradient ? Region::gradient
                                                 : Region::state;
  return at(
      plan_.layout.instances[static_cast<std::size_t>(region)][static_cast<std::size_t>(instance)].base +
      plan_.offsets[id]);
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
  const Value& value = program_.value(id);
  PRUN_CHECK(value.role == Role::staging, "value '", value.name, "' is not staged");
  Call call;
  call.microbatch = static_cast<std::int32_t>(microbatch);
  const Region region = value.dims.empty() ? Region::scalars : Region::batch;
  return at(plan_.resolve(call, {region, Whose::own, -1, plan_.offsets[id], value.bytes()},
                          static_cast<int>(step % 2)));
}

}  // namespace prun
