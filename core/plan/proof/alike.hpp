// Finds which ranks a simulation need not distinguish: the coarsest division in which ranks of one class have
// the same plan and meet the same classes.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "plan/proof/simulated_rank.hpp"

namespace prun {

// Returns, by rank, a number that indistinguishable ranks share: they have the same plan and, by queue,
// members with the same numbers in the same order.
std::vector<int> classes_of_ranks(std::span<const SimulatedRank> ranks);

// Divides ranks into such classes, of which the first rank of each stands for all.
class RankClasses {
 public:
  // The ranks must outlive the classes.
  explicit RankClasses(std::span<const SimulatedRank> ranks);

  std::size_t count() const { return first_.size(); }
  const SimulatedRank& first(std::size_t number) const { return *first_[number]; }
  // Returns how many ranks the class has.
  std::int64_t size(std::size_t number) const { return sizes_[number]; }
  int class_of(int rank) const { return class_of_.at(rank); }
  std::span<const SimulatedRank> ranks() const { return ranks_; }

 private:
  std::span<const SimulatedRank> ranks_;
  std::vector<const SimulatedRank*> first_;
  std::vector<std::int64_t> sizes_;
  std::unordered_map<int, int> class_of_;  // class by a rank's number
};

}  // namespace prun
