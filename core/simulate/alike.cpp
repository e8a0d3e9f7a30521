// Which ranks a simulation need not tell apart: the coarsest division in which ranks of one class have the
// same plan and meet the same classes. Begins with the plans and divides further until nothing changes.
#include <map>
#include <unordered_map>

#include "simulate/simulate.hpp"

namespace prun {
namespace {

// Sends and receives name a member: its place in the group matters.
bool names_members(const Plan& plan, std::size_t queue) {
  for (const Call& call : plan.calls) {
    if (static_cast<std::size_t>(call.queue) != queue) continue;
    for (const PlannedStep& step : plan.steps(call))
      if (step.exchange && (step.exchange->kind == CommKind::send || step.exchange->kind == CommKind::recv))
        return true;
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
      classes_[i] = numbers.try_emplace(std::move(sign), static_cast<int>(numbers.size())).first->second;
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
      next[i] = numbers.try_emplace(std::move(sign), static_cast<int>(numbers.size())).first->second;
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
    entry->second =
        companies.try_emplace(std::move(members), static_cast<int>(companies.size())).first->second;
    return entry->second;
  }

  std::span<const SimulatedRank> ranks_;
  std::unordered_map<int, std::size_t> index_;
  std::vector<int> classes_;
  std::size_t count_ = 0;
};

}  // namespace

namespace {

void share(const Group& group, std::vector<Group>& by_rank) {
  for (const int member : *group) by_rank[static_cast<std::size_t>(member)] = group;
}

}  // namespace

std::vector<int> tell_apart(std::span<const SimulatedRank> ranks) { return Division(ranks).run(); }

std::vector<SimulatedRank> all_ranks(const Program& program,
                                     const std::function<const Plan&(int rank)>& plan_of) {
  const Mesh& mesh = program.mesh();
  std::vector<SimulatedRank> ranks(static_cast<std::size_t>(mesh.world()));
  std::map<std::string, std::vector<Group>> groups;  // by queue and rank
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const int rank = static_cast<int>(i);
    const Plan& plan = plan_of(rank);
    ranks[i] = {&program, &plan, rank, std::vector<Group>(plan.queues.size())};
    for (std::size_t q = 0; q < plan.queues.size(); ++q) {
      if (!plan.queues[q].communicates()) continue;
      std::vector<Group>& of = groups[plan.queues[q].name];
      of.resize(ranks.size());
      if (!of[i]) share(std::make_shared<const std::vector<int>>(plan.queues[q].members(mesh, rank)), of);
      ranks[i].groups[q] = of[i];
    }
  }
  return ranks;
}

}  // namespace prun
