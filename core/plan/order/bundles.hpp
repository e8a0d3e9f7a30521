// Makes one call of the exchanges of several instances: small ones that follow each other would each take
// what an exchange takes at least. What travels together arrives together, so a bundle has few bytes.
#pragma once

#include "plan/plan.hpp"

namespace prun {

using Bundle = std::vector<std::int32_t>;  // instances

// Decides how many instances do the exchanges of their functions of a kind together.
class Bundling {
 public:
  // A bundle has up to `most` bytes. Without it, it has up to 32 MiB, but no more than a quarter of all that
  // these functions exchange, so that most of it is under way while something is computed.
  Bundling(const Plan& plan, FunctionKind kind, std::optional<std::int64_t> most);

  // Says whether it is small enough, or of one.
  bool takes(const Bundle& bundle) const;
  std::int64_t bytes(const Bundle& bundle) const;
  std::int64_t most() const { return most_; }
  // Bundles of consecutive ones.
  std::vector<Bundle> of(std::span<const std::int32_t> instances) const;

 private:
  Numbered<std::int64_t> bytes_;  // by instance
  std::int64_t most_ = 0;
};

// Names the pieces of a function that exchange, [first, last): those before them compute, and so do the next
// ones.
struct Exchanges {
  std::int32_t first = 0, last = 0;
};
Exchanges exchanges_of(const Plan& plan, std::int32_t function);

// The function that does these, which are for one queue, as one piece: made if there is none.
std::int32_t joint_function(Plan& plan, const std::vector<InstancePiece>& pieces);

}  // namespace prun
