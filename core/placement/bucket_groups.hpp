// Groups the parameters of a segment into buckets: a bucket has one update op and one collective, so its
// members must agree in all that either depends on (BucketKey). Example: with AdamW and weight decay, a block
// gives two buckets: the matrices with decay, gains and biases without.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "placement/pack.hpp"
#include "program/step_program.hpp"

namespace prun {

// ------------------------------------------------------------------- single sums
// Finds the sums of single gradients, with casts around them, that a bucket's collective replaces. Example:
// axes [hosts, dp, tp], bucket over dp. The sum over dp becomes a reduce-scatter; that over hosts follows for
// the shard; that over tp stays in front, for each full gradient.

class SingleSums {
 public:
  explicit SingleSums(const Packing& packing) : packing_(packing), program_(packing.program) {}

  // Returns true for a sum that the bucket takes over for all its gradients.
  bool is_replaced(const Bucket& bucket, Id op) const;

  // Names the further axes over which the bucket is summed for that gradient.
  std::string summed_behind(const Bucket& bucket, Id gradient) const;

  // Returns the casts around a sum that communicates in another type.
  std::vector<Id> casts_around(Id sum) const;

 private:
  bool stands_in_front(const Bucket& bucket, AxisId axis) const;
  bool is_of(Id sum, Id gradient) const;

  const Packing& packing_;
  const Program& program_;
};

// ------------------------------------------------------------------- bucket groups

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
  bool gathers_codes;  // codes are gathered in place of parameters (ProgramApi::gather_as)

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
  bool gathers_codes(Id parameter) const;
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

// ------------------------------------------------------------------- single ops
// Removes the zero, norm and reduce ops of single gradients, which ops of their bucket replace. Example: a
// block of six parameters loses six all-reduces in `reduce`; the strategy then writes one reduce-scatter.

class SingleOps {
 public:
  explicit SingleOps(const Packing& packing) : packing_(packing), program_(packing.program) {}

  // Keeps sums that come first over other axes. Returns the further axes over which removed ops summed: the
  // shard must be summed over them.
  std::set<AxisId> remove(const Bucket& bucket) const;

  // Refuses a strategy's op on a gradient that is sharded now.
  [[noreturn]] void refuse(Id op, Id gradient) const;

 private:
  template <class Expected>
  void remove_each(const Bucket& bucket, FunctionKind function, Expected&& expected) const;
  void check_sums_or_casts(Id op, const std::set<Id>& gradients) const;
  bool remove_sum(Id sum, const std::set<Id>& gradients) const;

  const Packing& packing_;
  Program& program_;
};

// Returns the first of the gradients that the op uses, or none.
Id touched_by(const Program& program, Id op, const std::set<Id>& gradients);

// ------------------------------------------------------------------- summand exchanges
// Sums over ranks, as signs (prun/block_codes.hpp), what an update makes of each rank's gradients: 1-bit
// Adam. Each rank adds the error of its last quantization and quantizes; one all-to-all gives each rank the
// codes of its shard; it sums them in rank order, adds that sum's error, quantizes, and an all-gather
// distributes the result. Errors are state. Example: momentum of 1024 elements on 4 ranks: a rank sends 3 ×
// 256 signs, sums 4 × 256, sends 256 signs to 3 ranks. Two other designs were considered. Signs instead of
// the gradient's all-reduce: the second moment needs gradients. A compressing comm plugin: its errors would
// be in no plan and no checkpoint.

class SummandExchanges {
 public:
  // A single rank has the contributions in rows, and communicates nothing.
  SummandExchanges(Program& program, const Bucket& bucket, std::int32_t number, std::int64_t summands)
      : program_(program),
        bucket_(bucket),
        number_(number),
        axis_(*bucket.summed_in_update),
        summands_(summands) {}

  // Adds a sum after each op with attribute `summands`, and lets its readers read the sum.
  void insert();

 private:
  bool is_alone() const { return program_.mesh().extent(axis_) == 1; }
  Id sum_of(Id summand, Id before);
  Id encoded(Id numbers, Id error, Id before);
  Id add(const char* kind, std::initializer_list<Id> inputs, std::span<const AttrValue> attrs, Id before);
  Id add_error(const char* name, Id like, bool of_ranks);
  void lay_in_parts(Id id);

  Program& program_;
  const Bucket& bucket_;
  const std::int32_t number_;
  const AxisId axis_;
  const std::int64_t summands_;
};

}  // namespace prun
