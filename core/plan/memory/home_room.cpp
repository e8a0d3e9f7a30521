#include "plan/memory/home_room.hpp"

#include "plan/offsets.hpp"

namespace prun {

Address HomeRoom::take(Id value, Region region, Id segment) {
  if (base_program_ && lasts(region)) return home_beneath(value);
  const std::int32_t range = range_for(value, region);
  const std::int64_t bytes = program_.local_bytes(value);
  const Space space = layout_.ranges[range].place.space;
  const std::int64_t fence = lowering_.fence_in(space);
  std::int64_t& used = sizes_[segment].of(region, range);
  const std::int64_t offset = used + fence;
  used += align(bytes + 2 * fence, space == Space::disk ? drive_alignment : alignment);
  return {region, Whose::own, -1, offset, bytes, no_axis, range};
}

// Returns the home of the value of the same name in the host plan.
Address HomeRoom::home_beneath(Id id) const {
  if (base_program_->is_of(program_)) return base_program_->plan.home(id);
  const Value& value = program_.value(id);
  const Program& other = base_program_->program;
  for (Id candidate : other.segment(value.segment).values)
    if (other.value(candidate).name == value.name && other.value(candidate).dtype == value.dtype)
      if (const auto home = base_program_->plan.homes.find(candidate);
          home != base_program_->plan.homes.end() && home->second.bytes == program_.local_bytes(id))
        return home->second;
  throw_error(ErrorCode::internal, "segment '", program_.segment(value.segment).name, "', value '",
              value.name, "' of ", program_.local_bytes(id), " bytes is not in the plan beneath");
}

std::int32_t HomeRoom::range_for(Id value, Region region) {
  const RegionFacts& facts = facts_of(region);
  const MemoryPlace usual{0, facts.is_staged ? Space::pinned : Space::device};
  return range_of(layout_, facts.may_be_placed ? program_.value(value).place.value_or(usual) : usual);
}

}  // namespace prun
