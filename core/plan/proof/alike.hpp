// Finds ranks that a simulation need not distinguish: same plan, and peers of the same classes. Example: dp =
// 4 × pp = 2 has two classes: the four ranks of stage 0, and those of stage 1.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "plan/proof/simulated_rank.hpp"

namespace prun {

// Returns, by rank, a number shared by indistinguishable ranks: the same plan and, by queue, members with the
// same numbers in the same order.
std::vector<int> classes_of_ranks(std::span<const SimulatedRank> ranks);

// The first rank of each class stands for all.
class RankClasses {
 public:
  // The ranks must outlive the classes.
  explicit RankClasses(std::span<const SimulatedRank> ranks);

  std::size_t count() const { return first_.size(); }
  const SimulatedRank& first(std::size_t number) const { return *first_[number]; }
  std::int64_t size(std::size_t number) const { return sizes_[number]; }
  int class_of(int rank) const { return class_of_.at(rank); }
  std::span<const SimulatedRank> ranks() const { return ranks_; }

 private:
  std::span<const SimulatedRank> ranks_;
  std::vector<const SimulatedRank*> first_;
  std::vector<std::int64_t> sizes_;
  std::unordered_map<int, int> class_of_;  // by rank
};

}  // namespace prun
