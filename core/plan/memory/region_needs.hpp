// Computes how much of each region a plan's instances and functions need, and for how many microbatches at
// once.
#pragma once

#include "plan/memory/region_bytes.hpp"
#include "plan/work.hpp"

namespace prun {

class RegionNeeds {
 public:
  // `sizes` are by segment. It needs plan.chunks and plan.functions.
  RegionNeeds(const Program& program, const Work& work, std::span<const RegionBytes> sizes, const Plan& plan)
      : program_(program), work_(work), sizes_(sizes), plan_(plan) {}

  // Returns the bytes of each instance in that range of the layout; the next function returns the most of
  // any.
  std::vector<std::int64_t> bytes_of(Region region, std::int32_t range) const {
    return bytes_by_instance(plan_, sizes_, region, range);
  }
  std::int64_t most_of(Region region, std::int32_t range) const;
  // Returns the bytes of what belongs to no instance of the chain.
  std::int64_t step_bytes(Region region, std::int32_t range) const {
    return sizes_[program_.step_segment()].of(region, range);
  }

  // Returns the most scratch of functions: what each has at once that no other reads after it, and workspaces
  // of kernels.
  std::int64_t most_scratch(std::int32_t range) const;
  std::int64_t most_workspace(std::int32_t range) const;
  // Returns, for each instance, the scratch of a function that others run beside.
  std::vector<std::int64_t> scratch_by_instance(Region region, std::int32_t range) const;

  std::int64_t slots_of(std::size_t instance) const;
  // Returns how many microbatches one instance does before the next one begins.
  std::int64_t slots_at_once() const;

  // Says whether boundaries pass on: if backward reads what has returned, an instance's output is needed only
  // by the next one's forward and by the copy that takes it away; while that goes on, two more instances can
  // compute.
  bool boundaries_pass_on() const;
  // Says whether the gradient of an instance's output must outlast the backward pass that makes it: it is for
  // or from another stage, or weight gradients are made of it later.
  bool boundary_gradient_lasts(std::size_t instance) const;

 private:
  const Chunk* chunk_of(std::size_t instance) const;

  const Program& program_;
  const Work& work_;
  std::span<const RegionBytes> sizes_;
  const Plan& plan_;
};

}  // namespace prun
