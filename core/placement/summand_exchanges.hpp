// Sums over ranks, in signs (prun/block_codes.hpp), what a bucket's update makes of each rank's own summand
// of the gradients. Each rank encodes its value and what codes left out before, one all-to-all gives every
// rank the codes of its part, it adds them up in the order of the ranks, encodes the sum likewise, and the
// parts are gathered. What codes leave out is state: one for each rank, and one for each part of the sum.
//
// Two other designs were possible. Signs in place of the gradient's all-reduce would be one exchange among
// others, but the second moment needs gradients, and momentum is what signs with feedback are good for. A
// comm plugin that compresses would have the errors in its own memory, where no plan counts and no checkpoint
// has them.
#pragma once

#include "program/step_program.hpp"

namespace prun {

class SummandExchanges {
 public:
  // A rank alone has the summands in rows, and exchanges nothing.
  SummandExchanges(Program& program, const Bucket& bucket, std::int32_t number, std::int64_t summands)
      : program_(program),
        bucket_(bucket),
        number_(number),
        axis_(*bucket.summed_in_update),
        summands_(summands) {}

  // Inserts a sum after each op of the update that has an attribute `summands`: its readers get the sum.
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
