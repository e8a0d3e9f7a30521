// Lets several instances share one collective, since each collective has a fixed cost. A bundle is what
// `run.bucket_bytes` bounds: nothing of it can be used before all of it has arrived. Example: 32 layers of
// 5 MB with a limit of 32 MiB: six layers in a bundle.
#pragma once

#include "plan/plan.hpp"

namespace prun {

using Bundle = std::vector<std::int32_t>;  // numbers of instances

// Decides which instances share the collectives of one kind of function.
class Bundling {
 public:
  // `most` limits the bytes of a bundle. Without it the limit is 32 MiB, but at most a quarter of all that
  // these functions exchange, so that three quarters can overlap with computation.
  Bundling(const Plan& plan, FunctionKind kind, std::optional<std::int64_t> most);

  // Returns true if the bundle is within the limit, or has one instance.
  bool takes(const Bundle& bundle) const;
  std::int64_t bytes(const Bundle& bundle) const;
  std::int64_t most() const { return most_; }
  // Divides the instances, in their order, into bundles.
  std::vector<Bundle> of(std::span<const std::int32_t> instances) const;

 private:
  Numbered<std::int64_t> bytes_;  // bytes by instance
  std::int64_t most_ = 0;
};

// Is the range [first, last) of a function's pieces that communicate. Pieces before and after it compute.
struct Exchanges {
  std::int32_t first = 0, last = 0;
};
Exchanges exchanges_of(const Plan& plan, std::int32_t function);

// Returns the function whose only piece does all of these pieces, which are for one queue. Adds it to the
// plan if it is not there.
std::int32_t joint_function(Plan& plan, const std::vector<InstancePiece>& pieces);

}  // namespace prun
