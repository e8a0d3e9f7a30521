#include "inspect/purposes.hpp"

#include <numeric>

#include "plan/offsets.hpp"

namespace prun {
namespace {

constexpr auto state = static_cast<std::size_t>(Region::state);

PurposeBytes empty(const std::string& name, const Plan& plan) {
  return {name, true, std::vector<std::int64_t>(plan.layout.ranges.size())};
}

// Counts all instances, with each value at a multiple of the range's alignment.
void add_parts(const Plan& plan, const Bucket& bucket, Id value, PurposeBytes& parts) {
  const auto home = plan.homes.find(value);
  if (home == plan.homes.end() || home->second.region != Region::state) return;
  const Layout::Range& range = plan.layout.ranges[static_cast<std::size_t>(home->second.range)];
  const std::int64_t unit = range.place.space == Space::disk ? drive_alignment : alignment;
  for (const Instance& instance : plan.instances)
    if (instance.segment == bucket.segment && !instance.is_stub())
      parts.by_range[static_cast<std::size_t>(home->second.range)] += align(home->second.bytes, unit);
}

}  // namespace

std::int64_t PurposeBytes::all() const {
  return std::accumulate(by_range.begin(), by_range.end(), std::int64_t{0});
}

std::vector<PurposeBytes> bytes_by_purpose(const Program& program, const Plan& plan) {
  PurposeBytes parameters = empty("parts of parameters", plan), gradients = empty("parts of gradients", plan);
  for (const Bucket& bucket : program.buckets()) {
    add_parts(plan, bucket, bucket.own_parameters, parameters);
    add_parts(plan, bucket, bucket.own_gradients, gradients);
  }
  std::vector<PurposeBytes> all;
  for (std::size_t region = 0; region < static_cast<std::size_t>(regions); ++region) {
    const auto of = static_cast<Region>(region);
    PurposeBytes& purpose = all.emplace_back(empty(name_of(of), plan));
    purpose.stays = lasts(of) || of == Region::slot;
    for (std::size_t r = 0; r < plan.layout.ranges.size(); ++r) {
      purpose.by_range[r] = plan.layout.ranges[r].memory.bytes[region];
      if (region == state) purpose.by_range[r] -= parameters.by_range[r] + gradients.by_range[r];
    }
    if (region != state) continue;
    for (PurposeBytes* const parts : {&parameters, &gradients})
      if (parts->all() > 0) all.push_back(*parts);
  }
  return all;
}

}  // namespace prun
