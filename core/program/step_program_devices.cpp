// Implements class Program: the devices of a rank on which its values are stored and its functions run.
#include <algorithm>

#include "program/step_program.hpp"

namespace prun {

void Program::check_device(std::int32_t device) const {
  if (device < 0 || device > static_cast<std::int32_t>(requests_.more_devices.size()))
    throw_error(ErrorCode::bad_input, "a rank has no device ", device,
                "; add it before something lies or runs there");
}

void Program::set_place(Id id, MemoryPlace place) {
  check_device(place.device);
  value(id).place = place;
}

void Program::run_on(Id segment_id, FunctionKind function, std::int32_t device) {
  check_device(device);
  segment(segment_id).devices[static_cast<std::size_t>(function)] = device;
}

void Program::share_saved(Id segment_id, std::vector<SavedShare> shares) {
  std::int64_t sum = 0;
  for (const SavedShare& share : shares) {
    check_device(share.place.device);
    const auto same = [&](const SavedShare& other) { return other.place == share.place; };
    const bool twice = std::count_if(shares.begin(), shares.end(), same) > 1;
    if (twice || share.percent < 1)
      throw_error(ErrorCode::bad_input, "cannot place ", share.percent,
                  " per cent of the saved activations of segment '", segment(segment_id).name, "' in ",
                  name_of(share.place.space), " of device ", share.place.device,
                  twice ? ": it is named twice" : ": that is less than 1",
                  "; name each place once, with 1 per cent or more");
    sum += share.percent;
  }
  if (sum != 100)
    throw_error(ErrorCode::bad_input, "segment '", segment(segment_id).name,
                "': the shares of what backward reads of forward come to ", sum,
                " per cent; let them come to 100");
  segment(segment_id).saved = std::move(shares);
}

bool Program::is_shown(Id segment_id, FunctionKind function) const {
  return !shown_ || segment(segment_id).device_of(function) == *shown_;
}

bool Program::is_used_elsewhere(Id value) const {
  if (is_carried(value) || is_carried_gradient(value)) return true;
  if (requests_.more_devices.empty()) return false;
  return std::any_of(ops_.begin(), ops_.end(), [&](const Op& op) {
    return op.def && !is_shown(op.segment, op.function) &&
           std::find(op.operands.begin(), op.operands.end(), value) != op.operands.end();
  });
}

}  // namespace prun
