#include "execute/plan_memory.hpp"

#include <algorithm>
#include <functional>
#include <future>

#include "base/process_limits.hpp"
#include "base/thread.hpp"

namespace prun {

PlanMemory::Range::Range(const Layout::Range& planned, DeviceInterface& its_device, std::int64_t fence)
    : device(its_device), planned_(planned), fence_(fence) {
  void* memory = nullptr;
  raise(device.allocate(planned.place.space, bytes(), &memory));
  base_ = static_cast<std::byte*>(memory) + fence;
}

PlanMemory::Range::~Range() { device.release(planned_.place.space, base_ - fence_, bytes()); }

PlanMemory::PlanMemory(const Program& program, const Plan& plan, const Devices& devices, bool fenced)
    : program_(program), plan_(plan) {
  give_back_free_memory();
  constexpr std::int64_t fence = range_alignment;
  const std::vector<Layout::Range>& planned = plan.layout.ranges;
  const auto has_fences = [&](const Layout::Range& range) {
    return fenced && range.place.space != Space::disk;
  };
  ranges_.resize(planned.size());
  const auto make = [&](bool of_disks) {
    for (std::size_t i = 0; i < planned.size(); ++i)
      if ((planned[i].place.space == Space::disk) == of_disks)
        ranges_[i] = std::make_shared<Range>(planned[i], *devices.at(planned[i].place.device),
                                             has_fences(planned[i]) ? fence : 0);
  };
  // Hundreds of GiB of memory and of files take minutes, and neither waits for the other. Memory is got on
  // this thread: a device may have it prefer a node, for all that the thread gets later.
  std::packaged_task<void()> of_disks([&] { make(true); });
  std::future<void> files = of_disks.get_future();
  std::jthread thread;
  if (std::any_of(planned.begin(), planned.end(),
                  [](const Layout::Range& range) { return range.place.space == Space::disk; }))
    thread = start_thread<std::jthread>("the files of drives", std::ref(of_disks));
  make(false);
  if (thread.joinable()) files.get();
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (!has_fences(planned[i])) continue;
    std::byte* const begin = ranges_[i]->at(planned[i].begin);
    fences_.emplace_back(begin - fence, static_cast<std::size_t>(fence));
    fences_.emplace_back(begin + planned[i].bytes(), static_cast<std::size_t>(fence));
  }
}

PlanMemory::PlanMemory(const Program& program, const Plan& plan, const PlanMemory& base_program)
    : program_(program), plan_(plan), ranges_(base_program.ranges_), fences_(base_program.fences_) {
  for (std::size_t i = 0; i < plan.layout.ranges.size(); ++i)
    PRUN_CHECK(plan.layout.ranges[i].bytes() <= base_program.plan_.layout.ranges.at(i).bytes(), "range ", i);
}

// Returns the last range that begins there or before.
const PlanMemory::Range& PlanMemory::range_of(std::int64_t offset) const {
  const std::vector<Layout::Range>& planned = plan_.layout.ranges;
  const auto behind = std::find_if(planned.begin() + 1, planned.end(),
                                   [&](const Layout::Range& range) { return range.begin > offset; });
  return *ranges_[static_cast<std::size_t>(behind - planned.begin()) - 1];
}

void PlanMemory::clear() const {
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const Layout::Range& planned = plan_.layout.ranges[i];
    std::byte* const begin = ranges_[i]->at(planned.begin);
    if (ranges_[i]->is_the_hosts())
      std::fill_n(begin, planned.bytes(), std::byte{0});
    else
      raise(ranges_[i]->device.clear(begin, planned.bytes()));
  }
}

std::int64_t PlanMemory::persistent(Id value, std::int32_t instance) const {
  return plan_.resolve(instance, plan_.home(value));
}

void PlanMemory::read(Id value, std::int32_t instance, std::int64_t first, std::span<std::byte> to) const {
  const std::int64_t offset = persistent(value, instance) + first;
  const Range& range = range_of(offset);
  if (range.is_the_hosts())
    std::copy_n(range.at(offset), to.size(), to.data());
  else
    raise(range.device.download(to.data(), range.at(offset), static_cast<std::int64_t>(to.size())));
}

void PlanMemory::write(Id value, std::int32_t instance, std::int64_t first,
                       std::span<const std::byte> from) const {
  const std::int64_t offset = persistent(value, instance) + first;
  const Range& range = range_of(offset);
  if (range.is_the_hosts())
    std::copy_n(from.data(), from.size(), range.at(offset));
  else
    raise(range.device.upload(range.at(offset), from.data(), static_cast<std::int64_t>(from.size())));
}

PlanMemory::Persistent PlanMemory::persistent_at(Id value, std::int32_t instance) const {
  const std::int64_t offset = persistent(value, instance);
  const Range& range = range_of(offset);
  return {range.at(offset), range.number()};
}

std::byte* PlanMemory::staged(Id id, std::int64_t step, std::int64_t microbatch) const {
  PRUN_CHECK(program_.value(id).role == Role::staging, "value '", program_.value(id).name, "' is not staged");
  Call call;
  call.microbatch = static_cast<std::int32_t>(microbatch);
  return at(plan_.resolve(call, plan_.home(id), plan_.side_of(step)));
}

}  // namespace prun
