// Moves values that are stored elsewhere than in the memory of the device that computes with them: a strategy
// says where (ProgramApi::place), and the moves follow from it.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "program/step_program.hpp"

namespace prun {

// ------------------------------------------------------------ leaving gradients

// Moves a gradient that is stored elsewhere: it is summed in memory that instances reuse and leaves by the
// function `reduce`: after the sum over the ranks, and after the ops that measure and search it, so that
// their bits are those of a gradient that stays. Where each microbatch adds to those of all layers before the
// next one does, a sum stays on the device until its update; or, by the function `clear`, it leaves behind
// each microbatch and comes back for the next, so that the same ops add the same numbers.

// States how the microbatches of a step add to a layer's gradients.
enum class GradientParts : std::uint8_t {
  one,        // there is one microbatch
  in_a_row,   // no microbatch adds to other layers' gradients in between
  far_apart,  // in between, each microbatch adds to those of all layers
};

// States where gradients are that microbatches far apart add to. The planner takes the first that fits.
enum class SumsMeanwhile : std::uint8_t {
  on_device,         // on the device, until an update copies them
  edges_on_device,   // so are those of the first and the last segment; others are where they leave for
  where_they_leave,  // each comes for a microbatch, and goes back behind it
};

struct MoveRules {
  GradientParts parts = GradientParts::one;
  // A layer's update need not wait for the norm; it does not wait if all gradients leave.
  bool free_updates = false;
  // Gradients that have left are there until the step ends, and not just until their updates.
  bool keep_gradients = true;
  // Several microbatches go through the layers side by side.
  bool side_by_side = false;
};

class LeavingGradients {
 public:
  LeavingGradients(Program& program, const MoveRules& rules) : program_(program), rules_(rules) {}

  // Has gradients make room for others where they arrive, once their updates have read them. It follows all
  // calls of take_away() and take_part_away().
  void make_room_behind_updates();

  // Moves the gradient of a single parameter that is stored elsewhere.
  void take_away(Id parameter);
  // Moves the rank's part of a bucket's gradients, which are stored at `place`; false: it stays until updates
  // read it.
  bool take_part_away(Bucket& bucket, MemoryPlace place);
  bool any() const { return !leaving_.empty(); }
  // Adds, once all are taken, the ops by which gradients of a segment leave.
  void leave(Id segment);

 private:
  Id sum_of_whole(Bucket& bucket);
  Id sum_of_kept(const Bucket& bucket);
  Id in_kept_type(const Bucket& bucket, Id sum, Id before);
  bool stays(Id gradient);
  SumsMeanwhile choose();
  void keep_until_update(Id segment, Id sum);
  void come_and_go(Id segment);
  void check_may_come_and_go(Id gradient) const;
  Id whole_meanwhile(const Bucket& bucket, MemoryPlace place);
  void check_summed_once(const Bucket& bucket) const;
  bool reads_gradient(Id op) const;
  bool reads_what_leaves(Id op) const;
  void move_op(Id id);

  struct Move {
    Id sum = none;      // complete sum, in the device's memory
    Id arrived = none;  // value in the place that it leaves for
  };

  Program& program_;
  const MoveRules rules_;
  std::optional<SumsMeanwhile> meanwhile_;  // choice, once it is made
  std::map<Id, Move> leaving_;              // moves by the value that ops on a gradient that stays would read
  std::vector<Move> returning_;  // sums that leave behind each microbatch, and where they are meanwhile
};

// Derives the moves, after strategies of phase `memory`. Throws an Error that says what cannot be stored
// where it is requested, and why.
void derive_moves(Program& program, const MoveRules& rules);

}  // namespace prun
