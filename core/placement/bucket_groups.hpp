// Finds which parameters of a segment make a bucket together: those that the same ops can update and ranks
// sum alike.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "placement/single_sums.hpp"

namespace prun {

enum class Travels : std::uint8_t { as_it_is, in_codes };

// Parameters of equal keys share a bucket. `norm` is the accumulator that the norm of a gradient is added to;
// it is none for a copy, which its original counts.
struct BucketKey {
  std::int32_t optimizer;
  bool decay;
  double lr_scale, weight_decay;
  Id norm;
  std::string lies, form;
  AxisId axis;
  Travels travels;
  bool in_squares;  // whether products read codes of squares, in which parameters come together

  friend auto operator<=>(const BucketKey&, const BucketKey&) = default;  // NOLINT: no null in it
};

using BucketMembers = std::map<BucketKey, std::vector<Id>>;

// Says whether a parameter and its gradient travel in codes if the recipe says so. Throws where a rank would
// have a part of a block.
bool comes_in_blocks(const Program& program, Id parameter);

class BucketGroups {
 public:
  explicit BucketGroups(const Packing& packing) : packing_(packing), program_(packing.program) {}

  // Refuses parameters whose gradients cannot be kept as the packing wants.
  BucketMembers of(Id segment) const;

 private:
  bool is_packed(Id parameter) const;
  BucketKey key_of(Id parameter, const std::vector<AxisId>& axes) const;
  bool travels_in_codes(Id parameter) const;
  bool comes_in_squares(Id parameter) const;
  Id norm_of(Id gradient, Id segment) const;
  std::string summed_behind(Id parameter, AxisId axis) const;
  std::string form_of(Id parameter) const;
  std::vector<AxisId> axes_of_frozen(const Value& parameter) const;
  std::vector<AxisId> axes_that_sum(const Value& parameter) const;
  void check_is_whole(const Value& parameter) const;
  void check_one_stage_has(Id parameter) const;

  const Packing& packing_;
  const Program& program_;
};

}  // namespace prun
