// Divides ranks by plan first, then refines until nothing changes.
#include "plan/proof/alike.hpp"

#include <map>

#include "base/narrow.hpp"

namespace prun {
namespace {

// Returns true if the queue's calls name a member, as sends and receives do: then positions in the group
// matter.
bool names_members(const Plan& plan, std::size_t queue) {
  for (const Call& call : plan.calls) {
    if (static_cast<std::size_t>(call.queue) != queue) continue;
    for (const PlannedStep& step : plan.steps(call))
      if (step.exchange && step.exchange->is_between_two()) return true;
  }
  return false;
}

int place_in(const std::vector<int>& members, int rank) {
  for (std::size_t i = 0; i < members.size(); ++i)
    if (members[i] == rank) return static_cast<int>(i);
  throw_error(ErrorCode::internal, "rank ", rank, " is not a member of its own group");
}

class Division {
 public:
  explicit Division(std::span<const SimulatedRank> ranks) : ranks_(ranks), classes_(ranks.size(), 0) {
    for (std::size_t i = 0; i < ranks.size(); ++i) index_[ranks[i].rank] = i;
    begin();
  }

  std::vector<int> run() {
    for (std::size_t before = 0; before != count_;) {
      before = count_;
      divide();
    }
    return classes_;
  }

 private:
  void begin() {
    std::map<std::pair<const Program*, const Plan*>, std::vector<bool>> ordered;
    std::map<std::vector<std::int64_t>, int> numbers;
    std::map<const Plan*, std::int64_t> plans;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const SimulatedRank& rank = ranks_[i];
      std::vector<bool>& places = ordered[{rank.program, rank.plan}];
      if (places.empty())
        for (std::size_t q = 0; q < rank.plan->queues.size(); ++q)
          places.push_back(names_members(*rank.plan, q));
      std::vector<std::int64_t> sign = {
          plans.try_emplace(rank.plan, static_cast<std::int64_t>(plans.size())).first->second};
      for (std::size_t q = 0; q < rank.groups.size(); ++q)
        sign.push_back(rank.groups[q] && places[q] ? place_in(*rank.groups[q], rank.rank) : -1);
      classes_[i] = numbers.try_emplace(std::move(sign), narrow<int>(numbers.size())).first->second;
    }
    count_ = numbers.size();
  }

  void divide() {
    std::map<std::vector<int>, int> numbers, companies;
    std::unordered_map<const std::vector<int>*, int> seen;
    std::vector<int> next(ranks_.size());
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      std::vector<int> sign = {classes_[i]};
      for (const Group& group : ranks_[i].groups) sign.push_back(company(group.get(), companies, seen));
      next[i] = numbers.try_emplace(std::move(sign), narrow<int>(numbers.size())).first->second;
    }
    count_ = numbers.size();
    classes_ = std::move(next);
  }

  int company(const std::vector<int>* group, std::map<std::vector<int>, int>& companies,
              std::unordered_map<const std::vector<int>*, int>& seen) const {
    if (!group) return -1;
    const auto [entry, fresh] = seen.try_emplace(group, 0);
    if (!fresh) return entry->second;
    std::vector<int> members;
    for (int rank : *group) {
      const auto found = index_.find(rank);
      PRUN_CHECK(found != index_.end(), "rank ", rank, " is in a group, but is not simulated");
      members.push_back(classes_[found->second]);
    }
    entry->second = companies.try_emplace(std::move(members), narrow<int>(companies.size())).first->second;
    return entry->second;
  }

  std::span<const SimulatedRank> ranks_;
  std::unordered_map<int, std::size_t> index_;
  std::vector<int> classes_;
  std::size_t count_ = 0;
};

}  // namespace

std::vector<int> classes_of_ranks(std::span<const SimulatedRank> ranks) { return Division(ranks).run(); }

RankClasses::RankClasses(std::span<const SimulatedRank> ranks) : ranks_(ranks) {
  const std::vector<int> classes = classes_of_ranks(ranks);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto number = static_cast<std::size_t>(classes[i]);
    class_of_[ranks[i].rank] = classes[i];
    if (number == first_.size()) {
      first_.push_back(&ranks[i]);
      sizes_.push_back(0);
    }
    ++sizes_[number];
  }
}

}  // namespace prun
