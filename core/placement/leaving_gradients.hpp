// Moves a gradient that is stored elsewhere: it is summed in memory that instances reuse and leaves by the
// function `reduce`: after the sum over the ranks, and after the ops that measure and search it, so that
// their bits are those of a gradient that stays.
#pragma once

#include <map>

#include "program/step_program.hpp"

namespace prun {

// States how the microbatches of a step add to a layer's gradients.
enum class GradientParts : std::uint8_t {
  one,        // there is one microbatch
  in_a_row,   // no microbatch adds to other layers' gradients in between
  far_apart,  // in between, each microbatch adds to those of all layers
};

class LeavingGradients {
 public:
  LeavingGradients(Program& program, GradientParts parts) : program_(program), parts_(parts) {}

  // Has gradients make room for others where they arrive, once their updates have read them. It follows all
  // calls of take_away() and take_part_away().
  void make_room_behind_updates();

  // Moves the gradient of a single parameter that is stored elsewhere.
  void take_away(Id parameter);
  // Moves the rank's part of a bucket's gradients, which are stored at `place`.
  void take_part_away(Bucket& bucket, MemoryPlace place);
  bool any() const { return !leaving_.empty(); }
  // Adds, once all are taken, the ops by which gradients of a segment leave.
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
    Id sum = none;      // complete sum, in the device's memory
    Id arrived = none;  // value in the place that it leaves for
  };

  Program& program_;
  const GradientParts parts_;
  std::map<Id, Move> leaving_;  // moves by the value that ops on a gradient that stays would read
};

}  // namespace prun
