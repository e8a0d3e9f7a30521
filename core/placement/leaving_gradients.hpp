// A gradient that is to lie elsewhere is summed in memory that instances have in turn and leaves by the
// function `reduce`: behind the sum over the ranks, and behind the ops that measure it and look through it,
// so that their bits are those of a gradient that stays.
#pragma once

#include <map>

#include "program/step_program.hpp"

namespace prun {

// How the microbatches of a step add to a layer's gradients.
enum class GradientParts : std::uint8_t {
  one,        // there is one
  in_a_row,   // nothing else adds to others meanwhile
  far_apart,  // in between, each adds to those of all layers
};

class LeavingGradients {
 public:
  LeavingGradients(Program& program, GradientParts parts) : program_(program), parts_(parts) {}

  // That of a parameter of its own, which lies elsewhere.
  void take_away(Id parameter);
  // Of a bucket's gradients, which are to lie there, the rank's part.
  void take_part_away(Bucket& bucket, MemoryPlace place);
  bool any() const { return !leaving_.empty(); }
  // Once all are taken: what those of a segment leave by.
  void leave(Id segment);

 private:
  Id sum_of_whole(Bucket& bucket);
  Id sum_of_kept(const Bucket& bucket);
  Id in_kept_type(const Bucket& bucket, Id sum, Id before);
  void check_stays_in_turn(Id gradient) const;
  void check_summed_once(const Bucket& bucket) const;
  bool reads_gradient(Id op) const;
  bool reads_what_leaves(Id op) const;
  void move_op(Id id);

  struct Move {
    Id sum = none;      // complete, in the device's memory
    Id arrived = none;  // where it leaves to
  };

  Program& program_;
  const GradientParts parts_;
  std::map<Id, Move> leaving_;  // by what the ops of a gradient that stays read
};

}  // namespace prun
