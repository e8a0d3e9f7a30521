// Assigns the memory that a function has to itself: values that nothing reads after it, and workspaces.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plan/offsets.hpp"
#include "plan/plan.hpp"

namespace prun {

// Bytes that are not needed by the same steps may share memory.
class FunctionScratch {
 public:
  // `fence`: bytes kept free around each. `workspaces`: where they lie, which may be apart from values.
  FunctionScratch(Region region, Region workspaces, std::int64_t fence, Layout& layout)
      : region_(region), workspaces_in_(workspaces), fence_(fence), layout_(layout) {}

  // Step `at` uses a value, which lies in that place and has so many bytes.
  void use(Id value, MemoryPlace place, std::int64_t bytes, std::int32_t at);
  void add_workspace(MemoryPlace place, std::int64_t bytes, std::int32_t at);

  // Assigns offsets once all steps are known. `side_by_side` places what is in the recipe's device's own
  // memory in the order of its first uses. Returns the bytes needed, by range.
  std::vector<std::int64_t> assign(bool side_by_side);

  // Returns the bytes of workspaces that are placed apart, by range.
  const std::vector<std::int64_t>& workspace_bytes() const { return apart_; }

  // After assign(): gives a step's operands, but for those with a home, and its workspace their addresses,
  // and says which bytes it is the last to use.
  void place(PlannedStep& step, std::int32_t at, const Homes& homes) const;

 private:
  // Says which of a range's lifetimes it is.
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
  std::vector<std::vector<Lifetime>> lifetimes_;  // by range
  std::map<Id, Scratch> values_;
  std::map<std::int32_t, Address> workspaces_;  // by step, of those that lie apart
  std::map<std::int32_t, Scratch> among_;       // of the others
  std::vector<std::int64_t> apart_;
};

}  // namespace prun
