// Derives copies for values that are not stored on the device that computes with them. A strategy places a
// value (ProgramApi::place); which copies follow, and in which function, is decided here. Example: `gradients
// = "host"` places each gradient in pinned memory. Backward then accumulates in a buffer that layers reuse;
// `reduce` sums it over ranks, adds its squares to the norm and copies it to the host, while the next layer
// computes.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "program/step_program.hpp"

namespace prun {

// ------------------------------------------------------------------- moves

// ------------------------------------------------------------ leaving gradients

// Offloads gradients. A gradient is accumulated in memory that layers reuse. In `reduce` it is summed over
// ranks, measured, searched for non-finite numbers, then copied; so all bits equal those of a gradient that
// stays. If each microbatch adds to the gradients of all layers before the next one starts, the sum either
// stays on the device until its update, or `clear` offloads it after each microbatch and fetches it before
// the next (SumsMeanwhile).

// In which order a step's microbatches add to a layer's gradients.
enum class GradientParts : std::uint8_t {
  one,        // one microbatch
  in_a_row,   // all microbatches add to a layer's gradients before other layers' are touched
  far_apart,  // each microbatch adds to the gradients of all layers
};

// Where gradients are between microbatches that are far apart. The planner takes the first that fits.
enum class SumsMeanwhile : std::uint8_t {
  on_device,         // on the device until their updates copy them
  edges_on_device,   // as above for first and last segment; layers' gradients are offloaded in between
  where_they_leave,  // all are offloaded after each microbatch and fetched for the next
};

struct MoveRules {
  GradientParts parts = GradientParts::one;
  // Updates may start before the norm is known; they do if all gradients are offloaded.
  bool free_updates = false;
  // Offloaded gradients stay until the end of the step; otherwise an update frees them.
  bool keep_gradients = true;
  // batch.interleave runs several microbatches through the layers together.
  bool interleaved = false;
};

class LeavingGradients {
 public:
  LeavingGradients(Program& program, const MoveRules& rules) : program_(program), rules_(rules) {}

  // Lets updates free offloaded gradients. Call it after all take_away() and take_part_away().
  void make_room_behind_updates();

  // Offloads the gradient of a parameter that is in no bucket.
  void take_away(Id parameter);
  // Offloads a rank's shard of a bucket's gradients to `place`. Returns false if it stays until its update.
  bool take_part_away(Bucket& bucket, MemoryPlace place);
  bool any() const { return !leaving_.empty(); }
  // Adds the copies of a segment's gradients, once all are taken.
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
    Id sum = none;      // in the device's memory, summed over ranks
    Id arrived = none;  // where it is offloaded to
  };

  Program& program_;
  const MoveRules rules_;
  std::optional<SumsMeanwhile> meanwhile_;
  std::map<Id, Move> leaving_;   // by the value that ops read if it stays
  std::vector<Move> returning_;  // offloaded between microbatches
};

// Runs after phase `memory`. Throws an Error that names what cannot be stored as requested, and why.
void derive_moves(Program& program, const MoveRules& rules);

// ------------------------------------------------------------------- saved moves
// Offloads activations: what backward reads of a segment's forward is stored elsewhere in between
// (`activations = "host"`). Example: with `host:60, device:40` the largest saved tensor goes to the host, the
// next to whichever place is then further below its share. `put_away` copies it after forward, `bring_back`
// fetches it before backward.

// Runs after devices have lowered the program, which decides what backward reads.
void derive_saved_moves(Program& program);

}  // namespace prun
