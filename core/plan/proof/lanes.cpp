#include "plan/proof/lanes.hpp"

#include <map>

#include "base/narrow.hpp"
#include "plan/plan.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- simulated rank

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

namespace {

// ------------------------------------------------------------------- rank classes
// Divides ranks by plan first, then refines until nothing changes.

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
    std::map<std::vector<int>, int> numbers, group_classes;
    std::unordered_map<const std::vector<int>*, int> seen;
    std::vector<int> next(ranks_.size());
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      std::vector<int> sign = {classes_[i]};
      for (const Group& group : ranks_[i].groups)
        sign.push_back(group_class(group.get(), group_classes, seen));
      next[i] = numbers.try_emplace(std::move(sign), narrow<int>(numbers.size())).first->second;
    }
    count_ = numbers.size();
    classes_ = std::move(next);
  }

  int group_class(const std::vector<int>* group, std::map<std::vector<int>, int>& group_classes,
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
        group_classes.try_emplace(std::move(members), narrow<int>(group_classes.size())).first->second;
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

// ------------------------------------------------------------------- lanes

Lanes::Lanes(const RankClasses& ranks, std::int64_t steps)
    : ranks_(ranks), steps_(steps), iterations_(steps) {
  for (std::size_t rank = 0; rank < ranks.count(); ++rank) {
    const Plan& plan = *ranks.first(rank).plan;
    if (plan.overlaps) iterations_ = std::max(iterations_, steps + plan.depth());
    first_.push_back(lanes_.size());
    for (std::size_t q = 0; q < plan.queues.size(); ++q)
      lanes_.push_back({rank, static_cast<std::int32_t>(q), {}});
    for (const Call& call : plan.calls) {
      Lane& lane = lanes_[of(rank, call.queue)];
      lane.calls.push_back(&call);
    }
    for (const Call& call : plan.calls)
      if (call.behind > 0) {
        Lane& lane = lanes_[of(rank, call.queue)];
        const auto before = static_cast<std::size_t>(call.behind) - 1;
        lane.behind =
            std::max(lane.behind, before * lane.calls.size() + static_cast<std::size_t>(call.position) + 1);
      }
  }
  first_.push_back(lanes_.size());
  is_awake_.resize(lanes_.size());
}

std::string Lanes::text_of(const Lane& lane) const {
  const SimulatedRank& rank = rank_of(lane);
  return detail::concat("rank ", rank.rank, ", queue ", info_of(lane).name, ", call ", lane.call().position,
                        " (", call_name(*rank.program, *rank.plan, lane.call()), ")");
}

void Lanes::wake(std::size_t lane) {
  if (is_awake_[lane]) return;
  is_awake_[lane] = true;
  awake_.push_back(lane);
}

void Lanes::wake_rank(std::size_t rank) {
  for (std::size_t lane = first_[rank]; lane < first_[rank + 1]; ++lane) wake(lane);
}

void Lanes::wake_all() {
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) wake(lane);
}

std::optional<std::size_t> Lanes::next_awake() {
  if (awake_.empty()) return {};
  const std::size_t lane = awake_.front();
  awake_.pop_front();
  is_awake_[lane] = false;
  return lane;
}

// ------------------------------------------------------------------- channels

// Returns true for the last lane to arrive.
bool Channels::arrive(std::size_t lane, const PlannedExchange& exchange, double now, const Channel& channel,
                      Meeting& meeting) const {
  if (!meeting.exchange)
    meeting.exchange = &exchange;
  else
    check_same(lanes_[meeting.lanes.front()], *meeting.exchange, lanes_[lane], exchange);
  meeting.lanes.push_back(lane);
  meeting.latest = std::max(meeting.latest, now);
  return meeting.lanes.size() == channel.classes.size();
}

void Channels::wake_others(std::size_t lane, const Meeting& meeting) {
  for (const std::size_t other : meeting.lanes)
    if (other != lane) lanes_.wake(other);
}

void Channels::check_same(const Lane& a, const PlannedExchange& x, const Lane& b,
                          const PlannedExchange& y) const {
  const bool kinds = x.is_between_two() ? x.kind != y.kind : x.kind == y.kind;
  if (kinds && x.count * size_of(x.dtype) == y.count * size_of(y.dtype)) return;
  throw_error(ErrorCode::comm_failed, "the plans do not fit together: ", lanes_.text_of(a), " meets ",
              lanes_.text_of(b));
}

// Returns the channel of the members; between two ranks, each direction has one.
std::size_t Channels::channel_of(const Lane& lane, const PlannedExchange& exchange) {
  const std::vector<int>& group = *lanes_.group_of(lane);
  int from = -1, to = -1;
  if (exchange.is_between_two()) {
    const int rank = lanes_.rank_of(lane).rank;
    const int own = static_cast<int>(std::find(group.begin(), group.end(), rank) - group.begin());
    PRUN_CHECK(exchange.peer >= 0 && exchange.peer < static_cast<int>(group.size()) && exchange.peer != own,
               lanes_.text_of(lane), " has peer ", exchange.peer);
    from = exchange.kind == CommKind::send ? own : exchange.peer;
    to = exchange.kind == CommKind::send ? exchange.peer : own;
  }
  const auto [entry, fresh] =
      numbers_.try_emplace({lanes_.info_of(lane).name, group_class_of(group), from, to}, channels_.size());
  if (fresh) channels_.push_back(make_channel(group, from, to));
  return entry->second;
}

Channels::Channel Channels::make_channel(const std::vector<int>& group, int from, int to) const {
  Channel channel;
  channel.members = static_cast<std::int64_t>(group.size());
  std::int64_t host = -1;
  for (std::size_t i = 0; i < group.size(); ++i)
    if (from < 0 || static_cast<int>(i) == from || static_cast<int>(i) == to) {
      channel.classes.push_back(ranks_.class_of(group[i]));
      if (ranks_of_host_ <= 0) continue;
      channel.far = channel.far || (host >= 0 && host != group[i] / ranks_of_host_);
      host = group[i] / ranks_of_host_;
    }
  std::sort(channel.classes.begin(), channel.classes.end());
  channel.classes.erase(std::unique(channel.classes.begin(), channel.classes.end()), channel.classes.end());
  return channel;
}

// Groups whose members are pairwise in the same classes are equivalent in time.
std::size_t Channels::group_class_of(const std::vector<int>& group) {
  const auto [known, fresh] = class_by_group_.try_emplace(&group, 0);
  if (!fresh) return known->second;
  std::vector<int> classes;
  classes.reserve(group.size());
  for (int rank : group) classes.push_back(ranks_.class_of(rank));
  if (ranks_of_host_ > 0)
    for (std::size_t i = 1; i < group.size(); ++i)
      classes.push_back(group[i] / ranks_of_host_ == group[i - 1] / ranks_of_host_);
  known->second = group_classes_.try_emplace(std::move(classes), group_classes_.size()).first->second;
  return known->second;
}

std::vector<int> Channels::missing_at(std::size_t lane) const {
  const Visitor& visitor = visitors_[lane];
  const Channel& channel = channels_[visitor.channel];
  const std::vector<std::size_t>& there = channel.meetings[visitor.met.at(visitor.channel)].lanes;
  std::vector<int> missing;
  for (const int number : channel.classes) {
    const auto rank = static_cast<std::size_t>(number);
    const auto is_of_it = [&](std::size_t other) { return lanes_[other].rank == rank; };
    if (std::none_of(there.begin(), there.end(), is_of_it)) missing.push_back(ranks_.first(rank).rank);
  }
  return missing;
}

}  // namespace prun
