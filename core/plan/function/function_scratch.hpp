// Assigns the memory that a function has to itself: values that nothing reads after it, and workspaces.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plan/offsets.hpp"
#include "plan/plan.hpp"

namespace prun {

// Assigns this memory; bytes that are not needed by the same steps may share it.
class FunctionScratch {
 public:
  // `fence` counts the bytes kept free around each. `workspaces` says where workspaces lie, which may be
  // apart from values.
  FunctionScratch(Region region, Region workspaces, std::int64_t fence, Layout& layout)
      : region_(region), workspaces_in_(workspaces), fence_(fence), layout_(layout) {}

  // Notes that step `at` uses a value, which lies in that place and has so many bytes.
  void use(Id value, MemoryPlace place, std::int64_t bytes, std::int32_t at);
  void add_workspace(MemoryPlace place, std::int64_t bytes, std::int32_t at);

  // Assigns offsets once all steps are known. `side_by_side` places values in the recipe's device's own
  // memory in the order of their first uses. Returns the bytes needed, by range.
  std::vector<std::int64_t> assign(bool side_by_side);

  // Returns the bytes of workspaces that are placed apart, by range.
  const std::vector<std::int64_t>& workspace_bytes() const { return apart_; }

  // Gives, after assign(), a step's operands without a home and its workspace their addresses, and says which
  // bytes the step is the last to use.
  void place(PlannedStep& step, std::int32_t at, const Homes& homes) const;

 private:
  // Names one of a range's lifetimes.
  struct Scratch {
    std::size_t range = 0, index = 0;
  };

  Scratch add_lifetime(MemoryPlace place, std::int64_t bytes, std::int32_t at);
  const Lifetime& lifetime_of(const Scratch& scratch) const {
    return lifetimes_[scratch.range][scratch.index];
  }
  Address address_of(const Scratch& scratch) const;

  const Region region_, workspaces_in_;
  const std::int64_t fence_;
  Layout& layout_;
  std::vector<std::vector<Lifetime>> lifetimes_;  // lifetimes by range
  std::map<Id, Scratch> values_;
  std::map<std::int32_t, Address> workspaces_;  // workspaces that lie apart, by step
  std::map<std::int32_t, Scratch> among_;       // other workspaces, by step
  std::vector<std::int64_t> apart_;
};

}  // namespace prun
