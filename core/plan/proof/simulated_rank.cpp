#include "plan/proof/simulated_rank.hpp"

#include <map>

namespace prun {
namespace {

void share(const Group& group, Numbered<Group>& by_rank) {
  for (const int member : *group) by_rank[member] = group;
}

}  // namespace

std::vector<SimulatedRank> all_ranks(const Program& program,
                                     const std::function<const Plan&(int rank)>& plan_of) {
  const Mesh& mesh = program.mesh();
  std::vector<SimulatedRank> ranks(static_cast<std::size_t>(mesh.world()));
  std::map<std::string, Numbered<Group>> groups;  // by queue and rank
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const int rank = static_cast<int>(i);
    const Plan& plan = plan_of(rank);
    ranks[i] = {&program, &plan, rank, Numbered<Group>(plan.queues.size())};
    for (std::size_t q = 0; q < plan.queues.size(); ++q) {
      if (!plan.queues[q].communicates()) continue;
      Numbered<Group>& of = groups[plan.queues[q].name];
      of.resize(ranks.size());
      if (!of[i]) share(std::make_shared<const std::vector<int>>(plan.queues[q].members(mesh, rank)), of);
      ranks[i].groups[q] = of[i];
    }
  }
  return ranks;
}

}  // namespace prun
