#include "plan/proof/channels.hpp"

namespace prun {

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
      numbers_.try_emplace({lanes_.info_of(lane).name, company_of(group), from, to}, channels_.size());
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
std::size_t Channels::company_of(const std::vector<int>& group) {
  const auto [known, fresh] = company_by_group_.try_emplace(&group, 0);
  if (!fresh) return known->second;
  std::vector<int> classes;
  classes.reserve(group.size());
  for (int rank : group) classes.push_back(ranks_.class_of(rank));
  if (ranks_of_host_ > 0)
    for (std::size_t i = 1; i < group.size(); ++i)
      classes.push_back(group[i] / ranks_of_host_ == group[i - 1] / ranks_of_host_);
  known->second = companies_.try_emplace(std::move(classes), companies_.size()).first->second;
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
