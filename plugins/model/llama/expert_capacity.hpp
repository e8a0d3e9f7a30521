// Limits how many positions of a sequence an expert takes: the choices beyond that are dropped and counted.
#pragma once

#include "expert_router.hpp"
#include "part.hpp"
#include "prun/model.hpp"

namespace prun {

class ExpertCapacity {
 public:
  explicit ExpertCapacity(const Options& options)
      : experts_(options.integer("experts")),
        capacity_(options.number("capacity")),
        first_come_(options.text("capacity_by") == "position") {}

  bool limited() const { return capacity_ != 0; }
  // Throws where options contradict each other or the router's.
  void check(const ExpertRouter& router) const;
  // Returns the choices that fit, of sequences of `seq` positions.
  Id build(const SegmentPart& s, std::int64_t seq, std::int64_t choices, const ChosenExperts& chosen) const;

 private:
  std::int64_t experts_;
  double capacity_;  // limits an expert's load, as a multiple of the mean; 0: no limit
  bool first_come_;
};

}  // namespace prun
