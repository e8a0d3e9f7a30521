// Sums over ranks, as signs (prun/block_codes.hpp), what an update makes of each rank's gradients: 1-bit
// Adam. Each rank adds the error of its last quantization and quantizes; one all-to-all gives each rank the
// codes of its shard; it sums them in rank order, adds that sum's error, quantizes, and an all-gather
// distributes the result. Errors are state. Example: momentum of 1024 elements on 4 ranks: a rank sends 3 ×
// 256 signs, sums 4 × 256, sends 256 signs to 3 ranks. Two other designs were considered. Signs instead of
// the gradient's all-reduce: the second moment needs gradients. A compressing comm plugin: its errors would
// be in no plan and no checkpoint.
#pragma once

#include "program/step_program.hpp"

namespace prun {

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
