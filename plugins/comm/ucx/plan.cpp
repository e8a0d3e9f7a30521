// Writes steps down, then turns the pairs "this before that" into a list per step.
#include "plan.hpp"

#include "prun/error.hpp"

namespace prun::ucx {

void refuse_more_steps(std::size_t members, std::int64_t steps) {
  if (steps > most_steps)
    throw_error(ErrorCode::unsupported, "an exchange among ", members, " ranks takes more than the ",
                most_steps,
                " messages, sums and copies that comm plugin 'ucx' plans; raise comm.ucx.chunk_kib, or take "
                "smaller tensors");
}

StepId PlanWriter::add(Step step, After after) {
  refuse_more_steps(sent_.size(), static_cast<std::int64_t>(plan_.steps.size()) + 1);
  const auto id = static_cast<StepId>(plan_.steps.size());
  for (const StepId before : after)
    if (before != no_step) {
      edges_.push_back({before, id});
      ++step.waits_for;
    }
  plan_.steps.push_back(step);
  return id;
}

StepId PlanWriter::notify(std::int32_t peer, After after) {
  return add({.action = Action::send, .peer = peer, .message = sent_[static_cast<std::size_t>(peer)]++},
             after);
}

StepId PlanWriter::await(std::int32_t peer, After after) {
  return add(
      {.action = Action::receive, .peer = peer, .message = received_[static_cast<std::size_t>(peer)]++},
      after);
}

StepId PlanWriter::send(std::int32_t peer, Place from, std::int64_t bytes, After after) {
  if (bytes == 0) return no_step;
  const StepId id = notify(peer, after);
  plan_.steps.back().from = from;
  plan_.steps.back().bytes = bytes;
  plan_.bytes_sent += static_cast<std::uint64_t>(bytes);
  return id;
}

StepId PlanWriter::receive(std::int32_t peer, Place to, std::int64_t bytes, After after) {
  if (bytes == 0) return no_step;
  const StepId id = await(peer, after);
  plan_.steps.back().to = to;
  plan_.steps.back().bytes = bytes;
  plan_.bytes_received += static_cast<std::uint64_t>(bytes);
  return id;
}

StepId PlanWriter::copy(Place from, Place to, std::int64_t bytes, After after) {
  if (bytes == 0) return no_step;
  return add({.action = Action::copy, .from = from, .to = to, .bytes = bytes}, after);
}

StepId PlanWriter::combine(Place from, Place second, Place to, std::int64_t bytes, After after) {
  if (bytes == 0) return no_step;
  return add({.action = Action::combine, .from = from, .second = second, .to = to, .bytes = bytes}, after);
}

StepId PlanWriter::join(const std::vector<StepId>& steps) {
  const StepId id = add({.action = Action::join}, {});
  for (const StepId before : steps)
    if (before != no_step) {
      edges_.push_back({before, id});
      ++plan_.steps[static_cast<std::size_t>(id)].waits_for;
    }
  return id;
}

Place PlanWriter::scratch(std::int64_t bytes) {
  constexpr std::int64_t line = 64;
  const Place place{Buffer::scratch, plan_.scratch_bytes};
  plan_.scratch_bytes += (bytes + line - 1) / line * line;
  return place;
}

Plan PlanWriter::finish() {
  for (const Edge& edge : edges_) ++plan_.steps[static_cast<std::size_t>(edge.before)].next_end;
  std::uint32_t begin = 0;
  for (Step& step : plan_.steps) {
    const std::uint32_t size = step.next_end;
    step.next_begin = step.next_end = begin;
    begin += size;
  }
  plan_.next.resize(edges_.size());
  for (const Edge& edge : edges_)
    plan_.next[plan_.steps[static_cast<std::size_t>(edge.before)].next_end++] = edge.after;
  return std::move(plan_);
}

}  // namespace prun::ucx
