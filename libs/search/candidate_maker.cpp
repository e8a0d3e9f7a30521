#include "search/candidate_maker.hpp"

#include <algorithm>

namespace prun {
namespace {

constexpr std::int64_t largest_micro = 64;

// Returns where axes lie on ranks unless another order is better: what exchanges most is innermost.
int depth_of(const SpacePart& part) {
  return part.variables.phase == "partition" ? 0 : part.variables.splits_batch ? 1 : 2;
}

std::int64_t extent(const Candidate& candidate, const std::string& axis) {
  for (const Axis& one : candidate.mesh)
    if (one.name == axis) return one.extent;
  return 1;
}

}  // namespace

std::vector<std::string> first_values(const SpacePart& part) {
  return part.variables.options.empty() ? std::vector<std::string>{""}
                                        : part.variables.options.front().values;
}

std::vector<std::string> CandidateMaker::batch_axes(const Candidate& candidate) const {
  std::vector<std::string> axes;
  for (std::size_t part = 0; part < open_.parts.size(); ++part)
    if (candidate.there[part] && open_.parts[part].variables.splits_batch &&
        extent(candidate, open_.parts[part].axis) > 1)
      axes.push_back(open_.parts[part].axis);
  return axes;
}

std::int64_t CandidateMaker::batch_ranks(const Candidate& candidate) const {
  std::int64_t ranks = 1;
  for (const std::string& axis : batch_axes(candidate)) ranks *= extent(candidate, axis);
  return ranks;
}

std::vector<std::int64_t> CandidateMaker::micros(const Candidate& candidate) const {
  if (open_.said_micro) return {*open_.said_micro};
  const std::int64_t ranks = batch_ranks(candidate);
  if (candidate.global % ranks != 0 && !open_.pads) return {};
  const std::int64_t own = std::max<std::int64_t>(1, candidate.global / ranks);
  std::vector<std::int64_t> micros;
  for (std::int64_t micro = 1; micro <= std::min(own, largest_micro); micro *= 2)
    if (own % micro == 0 || open_.pads) micros.push_back(micro);
  if (own <= largest_micro && micros.back() != own) micros.push_back(own);
  return micros;
}

std::vector<std::int64_t> CandidateMaker::free_extents(const Candidate& candidate) const {
  std::vector<std::int64_t> extents;
  for (const std::size_t part : open_.free) extents.push_back(extent(candidate, open_.parts[part].axis));
  return extents;
}

std::optional<Candidate> CandidateMaker::with_extents(const std::vector<std::int64_t>& extents,
                                                      std::int64_t global) const {
  Candidate candidate;
  candidate.global = global;
  candidate.mesh = open_.said_mesh;
  candidate.there.resize(open_.parts.size());
  candidate.options.resize(open_.parts.size());
  for (std::size_t part = 0; part < open_.parts.size(); ++part)
    if (open_.parts[part].place) {
      candidate.there[part] = true;
      candidate.options[part] = open_.parts[part].initial;
    }
  std::vector<std::pair<int, Axis>> brought;
  for (std::size_t i = 0; i < open_.free.size(); ++i) {
    const SpacePart& part = open_.parts[open_.free[i]];
    if (extents[i] == 1 && !part.place) continue;
    candidate.there[open_.free[i]] = true;
    brought.emplace_back(depth_of(part), Axis{part.axis, extents[i]});
    candidate.options[open_.free[i]] = part.initial;
  }
  std::stable_sort(brought.begin(), brought.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [depth, axis] : brought) candidate.mesh.push_back(std::move(axis));
  if (batch_ranks(candidate) > global) return {};
  const std::vector<std::int64_t> all = micros(candidate);
  if (all.empty()) return {};
  candidate.micro = all.front();
  return candidate;
}

std::optional<Candidate> CandidateMaker::with_part(Candidate candidate, std::size_t number,
                                                   const std::string& value) const {
  const SpacePart& part = open_.parts[number];
  if (candidate.there[number] || part.place || part.brings_axis()) return {};
  if (part.variables.axis == AxisUse::batch && batch_axes(candidate).empty()) return {};
  candidate.there[number] = true;
  candidate.options[number] = part.initial;
  if (!part.variables.options.empty()) candidate.options[number][part.variables.options.front().key] = value;
  return candidate;
}

std::optional<Candidate> CandidateMaker::with_all_freed(const Candidate& candidate,
                                                        std::size_t number) const {
  const SpacePart& part = open_.parts[number];
  Candidate freed = candidate;
  if (!candidate.there[number]) {
    const std::optional<Candidate> added = with_part(candidate, number, first_values(part).front());
    if (!added) return {};
    freed = *added;
  }
  for (const VariedOption& option : part.variables.options) {
    const auto most = part.frees->find(option.key);
    if (most == part.frees->end()) continue;
    const auto& values = option.values;
    if (std::find(values.begin(), values.end(), most->second) != values.end())
      freed.options[number][option.key] = most->second;
  }
  if (freed == candidate) return {};
  return freed;
}

void CandidateMaker::settle_micro(Candidate& candidate) const {
  const std::vector<std::int64_t> all = micros(candidate);
  if (all.empty()) return;
  std::int64_t best = all.front();
  for (const std::int64_t micro : all)
    if (micro <= candidate.micro) best = micro;
  candidate.micro = best;
}

}  // namespace prun
