// Exchanges of a bucket in codes (prun/block_codes.hpp): parameters that come together, and gradients that
// are summed in parts. Blocks are cut on the whole tensor and ranks round before they exchange, so that the
// numbers are the same however many ranks there are; a bucket of one rank rounds and exchanges nothing.
#pragma once

#include "program/step_program.hpp"

namespace prun {

// Whether a parameter and its gradient travel in codes where the recipe says so. Throws where a rank would
// have a part of a block.
bool comes_in_blocks(const Program& program, Id parameter);

class CodedExchanges {
 public:
  CodedExchanges(Program& program, std::int64_t parts) : program_(program), parts_(parts) {}

  // The bucket's codes, and what brings its parameters together by them.
  void gather_parameters(Bucket& bucket);
  // Adds the steps of one sum, of buckets that travel side by side one step after the other: each takes what
  // the one before returned, and the last writes the rank's part of the sum.
  Id encode_gradients(const Bucket& bucket);
  Id swap_gradients(const Bucket& bucket, Id codes);
  void sum_gradients(const Bucket& bucket, Id summands, Id part);

 private:
  Id add_codes(const Bucket& bucket, Id like, const char* name);
  Id first_in(const Bucket& bucket, FunctionKind function, bool (*wanted)(const Op& op)) const;

  Program& program_;
  const std::int64_t parts_;  // of a bucket
};

}  // namespace prun
