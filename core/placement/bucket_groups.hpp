// Groups the parameters of a segment into buckets: a bucket has one update op and one collective, so its
// members must agree in all that either depends on (BucketKey). Example: with AdamW and weight decay, a block
// gives two buckets: the matrices with decay, gains and biases without.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "placement/single_sums.hpp"

namespace prun {

enum class Travels : std::uint8_t { as_it_is, in_codes };

// Parameters with equal keys share a bucket. `norm` is the accumulator of the gradient's norm, none for the
// copy of a tied parameter, which is counted once.
struct BucketKey {
  std::int32_t optimizer;
  bool decay;
  double lr_scale, weight_decay;
  Id norm;
  std::string lies, form;
  AxisId axis;
  Travels travels;
  bool in_squares;  // parameters are gathered as fp8 codes of squares

  friend auto operator<=>(const BucketKey&, const BucketKey&) = default;  // NOLINT: no null in it
};

using BucketMembers = std::map<BucketKey, std::vector<Id>>;

// Returns true if parameter and gradient may be quantized for collectives. Throws if a rank's shard would
// break a block.
bool comes_in_blocks(const Program& program, Id parameter);

class BucketGroups {
 public:
  explicit BucketGroups(const Packing& packing) : packing_(packing), program_(packing.program) {}

  // Throws an Error if a gradient cannot be sharded as requested.
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
