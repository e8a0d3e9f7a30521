// Sums gradients of a bucket in parts by codes (prun/block_codes.hpp). Blocks are cut on the whole tensor and
// ranks round before they exchange, so that the numbers are the same however many ranks there are; a bucket
// of one rank rounds and exchanges nothing.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Says whether a parameter and its gradient travel in codes if the recipe says so. Throws where a rank would
// have a part of a block.
bool comes_in_blocks(const Program& program, Id parameter);

class CodedExchanges {
 public:
  CodedExchanges(Program& program, std::int64_t parts) : program_(program), parts_(parts) {}

  // These add the steps of one sum, for buckets that travel together one step after the other: each takes
  // what the one before returned, and the last writes the rank's part of the sum.
  Id encode_gradients(const Bucket& bucket);
  Id swap_gradients(const Bucket& bucket, Id codes);
  void sum_gradients(const Bucket& bucket, Id summands, Id part);

 private:
  Program& program_;
  const std::int64_t parts_;  // parts of a bucket
};

}  // namespace prun
