#include "plan/function/reach.hpp"

#include <algorithm>

#include "plan/plan_devices.hpp"

namespace prun {

MemoryPlace Reach::place_of(Id value) const {
  const auto allocation = plan_.allocations.find(value);
  if (allocation != plan_.allocations.end()) return plan_.layout.ranges[allocation->second.range].place;
  return program_.value(value).place.value_or(MemoryPlace{device_, Space::device});
}

bool Reach::reaches(std::int32_t device, MemoryPlace place) const {
  const PlanDevice& own = device_at(device);
  switch (place.space) {
    case Space::device: return device == place.device;
    case Space::pinned: return own.host_memory || own.tier || own.kind == device_at(place.device).kind;
    case Space::host: return own.host_memory || own.tier;
    case Space::disk: return own.tier && device == place.device;
  }
  return false;
}

bool Reach::reaches_all(std::int32_t device, const Op& op) const {
  return std::all_of(op.operands.begin(), op.operands.end(),
                     [&](Id value) { return value == none || reaches(device, place_of(value)); });
}

std::int32_t Reach::runner_of(const Op& op) const {
  if (!op.def->copies || reaches_all(device_, op)) return device_;
  std::int32_t runner = device_;
  for (std::int32_t device = 0; device < static_cast<std::int32_t>(lowering_.devices.size()); ++device)
    if (reaches_all(device, op) &&
        (runner == device_ || (device_at(device).asynchronous && !device_at(runner).asynchronous)))
      runner = device;
  return runner;
}

bool Reach::crosses(const Op& op) const {
  return op.def->copies && place_of(op.operands.front()) != place_of(op.operands.back());
}

std::string Reach::device_text(std::int32_t device) const {
  return detail::concat("device ", device, " ('", device_at(device).name, "')");
}

void Reach::check(const Op& op, std::int32_t device) const {
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == none) continue;
    const MemoryPlace place = place_of(op.operands[i]);
    if (reaches(device, place)) continue;
    const std::string out_of = place.space == Space::disk ? std::string("no kernel reaches")
                                                          : device_text(device) + " does not reach";
    refuse_op(program_, op, "operand '", op.def->operands[i].name, "' ('",
              program_.value(op.operands[i]).name, "') lies in ", name_of(place.space), " of ",
              device_text(place.device), ", which ", out_of,
              "; place it, or a copy of it, in memory of the device that runs ", name_of(op.function));
  }
}

}  // namespace prun
