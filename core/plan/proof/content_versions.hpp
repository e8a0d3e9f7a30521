// Decides which version of a value a reader must find, and which one a writer leaves. Example: in step 5 an
// update reads version 5 of a parameter and leaves version 6; forward of step 6 must find 6.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/proof/content.hpp"

namespace prun {

class ContentVersions {
 public:
  explicit ContentVersions(const Program& program);

  Counts of(Id value) const { return counts_[value]; }
  bool counts_updates(Id value) const { return of(value) == Counts::updates; }
  // Returns true if the op copies a parameter, or a part of it.
  bool carries_parameters(const Op& op) const;

  // A reader wants the step's own version, except of values that one step hands to the next. An op of an
  // update reads the old version or, after its own earlier ops, the new one. An op that copies parameters may
  // read any version: the op that computes with the copy needs the right one. `delay`: the reader wants a
  // version so many updates old.
  Versions wanted(Id value, std::int64_t step, bool updates, bool carries, std::int64_t delay = 0) const;
  // Returns how many updates old the value is when a step begins.
  std::int64_t delay_of(Id value) const { return program_.value(value).age; }
  // Returns what `step` leaves; for a value that counts updates, after `updates`.
  Content written(Content content, std::int64_t step, std::int64_t updates) const;

 private:
  void find_what_changes(const Op& op);
  void find_copies(const Op& op);
  void find_members(const Bucket& bucket);
  bool is_codes_of_member(Id value) const;
  bool holds_updated(Id value) const;

  const Program& program_;
  std::vector<Counts> counts_;  // by value
};

}  // namespace prun
