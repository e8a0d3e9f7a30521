// Merges small collectives of several instances (gathers of parameters, sums of gradients) into one call,
// since each collective has a least time. A bundle is limited in bytes, because what travels together arrives
// together. Example: 32 layers of 5 MB with a limit of 32 MiB: six layers a bundle.
#pragma once

#include "plan/plan.hpp"

namespace prun {

using Bundle = std::vector<std::int32_t>;  // numbers of instances

// Decides how many instances do their functions' exchanges of one kind together.
class Bundling {
 public:
  // A bundle has up to `most` bytes. Without that, it has up to 32 MiB, but no more than a quarter of all
  // that these functions exchange, so that most of it is under way while something is computed.
  Bundling(const Plan& plan, FunctionKind kind, std::optional<std::int64_t> most);

  // Says whether the bundle is small enough, or has one instance.
  bool takes(const Bundle& bundle) const;
  std::int64_t bytes(const Bundle& bundle) const;
  std::int64_t most() const { return most_; }
  // Returns bundles of consecutive instances.
  std::vector<Bundle> of(std::span<const std::int32_t> instances) const;

 private:
  Numbered<std::int64_t> bytes_;  // bytes by instance
  std::int64_t most_ = 0;
};

// Names the pieces of a function that exchange, [first, last): those before them compute, and so do the next
// ones.
struct Exchanges {
  std::int32_t first = 0, last = 0;
};
Exchanges exchanges_of(const Plan& plan, std::int32_t function);

// Returns the function that does these pieces, which are for one queue, as one piece; it is made if there is
// none.
std::int32_t joint_function(Plan& plan, const std::vector<InstancePiece>& pieces);

}  // namespace prun
