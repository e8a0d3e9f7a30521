// Decides which version of a value a reader must find, and which one a writer leaves.
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
  // Says whether an op makes a copy of a parameter, or of a part of it.
  bool carries_parameters(const Op& op) const;

  // Returns the versions wanted. What a step makes is its own, except for what the next one takes over. An op
  // of an update leaves a new version, and finds the old one or, behind other ops of itself, the new one. An
  // op that carries parameters elsewhere may carry any version, and the copy has it: the op that computes
  // with the copy needs the right one. `delay` says that the reader wants the version of so many updates
  // before.
  Versions wanted(Id value, std::int64_t step, bool updates, bool carries, std::int64_t delay = 0) const;
  // Returns how many updates a value is behind its parameter when a step begins.
  std::int64_t delay_of(Id value) const { return program_.value(value).age; }
  // Returns the content that `step` leaves; for a value that counts updates, after so many.
  Content written(Content content, std::int64_t step, std::int64_t updates) const;

 private:
  void find_what_changes(const Op& op);
  void find_copies(const Op& op);
  void find_members(const Bucket& bucket);
  bool is_codes_of_member(Id value) const;
  bool holds_updated(Id value) const;

  const Program& program_;
  std::vector<Counts> counts_;  // counts by value
};

}  // namespace prun
