// Tells apart what a program that makes text computes in each step and what it computes once for a text, such
// as an encoder: what depends on the text, but on none of the positions of which each step has some.
#pragma once

#include <optional>
#include <set>

#include "base/numbered.hpp"
#include "program/step_program.hpp"

namespace prun {

// Returns the dimension of the positions that the program's head has logits of, with those that a sequence
// has of them; none: it gives no logits (add_logits).
std::optional<Dim> positions_of_head(const Program& program);

// Says whether the program takes a text some positions at a time (step_by_positions).
bool steps_by_positions(const Program& program);

class TextSteps {
 public:
  explicit TextSteps(const Program& program);

  // Says whether the op, of forward, runs in each step because of its positions. Others depend on the text
  // alone, or on parameters alone.
  bool is_stepped(Id op) const { return stepped_.contains(op); }
  // Says whether the op, of forward, need run in a text's first step alone.
  bool is_once(Id op) const { return once_.contains(op); }
  // Says whether the value differs from step to step.
  bool moves(Id value) const { return origins_[value].moves; }
  // Says whether a value, such as one that goes from stage to stage, is there in that step alone.
  bool is_made_once(Id value) const { return origins_[value].of_text && !origins_[value].moves; }
  // Returns the results of ops that run once which ops of each step read.
  const std::set<Id>& left() const { return left_; }
  // Says whether all that ops of each step read of the others can be kept by the segment that reads it.
  bool may_be_left() const { return may_be_left_; }

 private:
  // Says of a value whether it differs from step to step, and whether it depends on the text at all.
  struct Origin {
    bool moves = false, of_text = false;
  };

  void visit_segment(Id segment);
  void visit(Id op);
  bool hand_on(Id from, Id to);
  void find_left(Id op);

  const Program& program_;
  Numbered<Origin> origins_;  // by value
  std::set<Id> stepped_, once_, left_;
  bool may_be_left_ = true;
};

// Has a text's first step leave to the others what they read of ops that run once: such values become state.
// It runs on a program that steps by positions, behind keep_forward().
void keep_what_is_left(Program& program);
// Returns such state: it says nothing before a text's first step has written it.
std::set<Id> left_by_first_step(const Program& program);

}  // namespace prun
