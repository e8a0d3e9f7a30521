#include "search/space.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- candidate maker

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

// ------------------------------------------------------------------- space

std::vector<std::string> sets_of(const Candidate& candidate, const OpenChoices& open) {
  std::vector<std::string> sets;
  for (const Axis& axis : candidate.mesh)
    sets.push_back(detail::concat("mesh.", axis.name, "=", axis.extent));
  if (open.globals.size() > 1) sets.push_back(detail::concat("batch.global=", candidate.global));
  sets.push_back(detail::concat("batch.micro=", candidate.micro));
  for (const VariedOption& key : open.keys) {
    const auto chosen = candidate.keys.find(key.key);
    sets.push_back(key.key + "=" + (chosen == candidate.keys.end() ? key.values.front() : chosen->second));
  }
  std::size_t next = 0;
  for (const SpacePart& part : open.parts) next += part.place.has_value();
  for (std::size_t i = 0; i < open.parts.size(); ++i) {
    if (!candidate.there[i]) continue;
    const SpacePart& part = open.parts[i];
    const std::string at = detail::concat("strategy.", part.place ? *part.place : next++, ".");
    if (!part.place) {
      sets.push_back(at + "plugin=" + part.variables.plugin);
      if (part.brings_axis()) sets.push_back(at + "axis=" + part.axis);
      const std::vector<std::string> axes = CandidateMaker(open).batch_axes(candidate);
      if (part.variables.axis == AxisUse::batch)
        sets.push_back(at + "axis=" +
                       (axes.size() > 1 && part.variables.many_axes ? recipe::to_toml(recipe::Value(axes))
                                                                    : axes.front()));
    }
    for (const auto& [key, value] : candidate.options[i]) sets.push_back(detail::concat(at, key, "=", value));
  }
  return sets;
}

std::string text_of(const Candidate& candidate, const OpenChoices& open) {
  std::vector<std::string> mesh, rest;
  for (const Axis& axis : candidate.mesh)
    if (axis.extent > 1) mesh.push_back(detail::concat(axis.name, " ", axis.extent));
  rest.push_back(mesh.empty() ? std::string("one rank") : join(mesh, " x "));
  if (open.globals.size() > 1) rest.push_back(detail::concat("batch ", candidate.global));
  rest.push_back(detail::concat("micro ", candidate.micro));
  for (const auto& [key, value] : candidate.keys)
    rest.push_back(key.substr(key.find('.') + 1) + " " + (value.empty() ? "as usual" : value));
  for (std::size_t i = 0; i < open.parts.size(); ++i) {
    if (!candidate.there[i] || candidate.options[i].empty()) continue;
    std::string said = open.parts[i].variables.plugin;
    for (const VariedOption& option : open.parts[i].variables.options)
      if (const auto chosen = candidate.options[i].find(option.key);
          chosen != candidate.options[i].end() && chosen->second != option.values.front())
        said += detail::concat(" ", option.key, " ", chosen->second);
    rest.push_back(said);
  }
  return join(rest, ", ");
}

namespace {

bool is_prime(std::int64_t number) {
  for (std::int64_t d = 2; d * d <= number; ++d)
    if (number % d == 0) return false;
  return true;
}

class CandidateMoves {
 public:
  explicit CandidateMoves(const OpenChoices& open) : open_(open), make_(open) {}

  std::vector<Candidate> from(const Candidate& candidate) {
    add_batch_moves(candidate);
    add_part_moves(candidate);
    add_key_moves(candidate);
    add_axis_moves(candidate);
    add_pairs(candidate);
    return std::move(moves_);
  }

 private:
  void add_batch_moves(const Candidate& candidate);
  void add_part_moves(const Candidate& candidate);
  void add_key_moves(const Candidate& candidate);
  void add_axis_moves(const Candidate& candidate);
  void carry_over(const Candidate& candidate, Candidate& next) const;
  void add_pairs(const Candidate& candidate);

  const OpenChoices& open_;
  const CandidateMaker make_;
  std::vector<Candidate> moves_;
};

void CandidateMoves::add_batch_moves(const Candidate& candidate) {
  for (const std::int64_t micro : make_.micros(candidate))
    if (micro != candidate.micro) {
      moves_.push_back(candidate);
      moves_.back().micro = micro;
    }
  for (const std::int64_t global : open_.globals) {
    Candidate other = candidate;
    other.global = global;
    if (global == candidate.global || make_.batch_ranks(other) > global || make_.micros(other).empty())
      continue;
    make_.settle_micro(other);
    moves_.push_back(std::move(other));
  }
}

void CandidateMoves::add_part_moves(const Candidate& candidate) {
  for (std::size_t part = 0; part < open_.parts.size(); ++part) {
    const SpacePart& of = open_.parts[part];
    for (const std::string& value : first_values(of))
      if (std::optional<Candidate> added = make_.with_part(candidate, part, value))
        moves_.push_back(std::move(*added));
    if (!candidate.there[part]) continue;
    if (!of.place && !of.brings_axis()) {
      Candidate without = candidate;
      without.there[part] = false;
      without.options[part].clear();
      moves_.push_back(std::move(without));
    }
    for (const VariedOption& variable : of.variables.options)
      for (const std::string& value : variable.values) {
        const auto now = candidate.options[part].find(variable.key);
        if (now != candidate.options[part].end() && now->second == value) continue;
        Candidate changed = candidate;
        changed.options[part][variable.key] = value;
        moves_.push_back(std::move(changed));
      }
  }
}

void CandidateMoves::add_key_moves(const Candidate& candidate) {
  for (const VariedOption& key : open_.keys)
    for (const std::string& value : key.values) {
      const auto now = candidate.keys.find(key.key);
      if ((now == candidate.keys.end() ? key.values.front() : now->second) == value) continue;
      moves_.push_back(candidate);
      moves_.back().keys[key.key] = value;
    }
}

// Carries over what does not depend on the extents of axes.
void CandidateMoves::carry_over(const Candidate& candidate, Candidate& next) const {
  next.keys = candidate.keys;
  next.micro = candidate.micro;
  const bool shares = !make_.batch_axes(next).empty();
  for (std::size_t part = 0; part < open_.parts.size(); ++part) {
    const SpacePart& of = open_.parts[part];
    const bool goes = of.variables.axis == AxisUse::batch && !shares && !of.place;
    if (of.brings_axis() && !next.there[part]) continue;
    if (!of.brings_axis()) next.there[part] = candidate.there[part] && !goes;
    if (candidate.there[part] && next.there[part]) next.options[part] = candidate.options[part];
  }
}

// Adds moves of a prime factor from one axis to another.
void CandidateMoves::add_axis_moves(const Candidate& candidate) {
  const std::vector<std::int64_t> extents = make_.free_extents(candidate);
  for (std::size_t from = 0; from < open_.free.size(); ++from)
    for (std::int64_t factor = 2; factor <= extents[from]; ++factor) {
      if (extents[from] % factor != 0 || !is_prime(factor)) continue;
      for (std::size_t to = 0; to < open_.free.size(); ++to) {
        if (to == from) continue;
        std::vector<std::int64_t> changed = extents;
        changed[from] /= factor;
        changed[to] *= factor;
        std::optional<Candidate> next = make_.with_extents(changed, candidate.global);
        if (!next) continue;
        carry_over(candidate, *next);
        make_.settle_micro(*next);
        moves_.push_back(std::move(*next));
      }
    }
}

// Adds pairs: two settings of one strategy may only work together, such as a schedule and its chunks.
void CandidateMoves::add_pairs(const Candidate& candidate) {
  const std::size_t single = moves_.size();
  for (std::size_t i = 0; i < single; ++i)
    for (std::size_t part = 0; part < open_.parts.size(); ++part) {
      if (moves_[i].there != candidate.there || moves_[i].options[part] == candidate.options[part]) continue;
      std::vector<Candidate> further;
      for (const VariedOption& variable : open_.parts[part].variables.options)
        for (const std::string& value : variable.values) {
          if (moves_[i].options[part][variable.key] != candidate.options[part].at(variable.key)) continue;
          if (candidate.options[part].at(variable.key) == value) continue;
          further.push_back(moves_[i]);
          further.back().options[part][variable.key] = value;
        }
      for (Candidate& one : further)
        if (std::find(moves_.begin(), moves_.end(), one) == moves_.end()) moves_.push_back(std::move(one));
    }
}

}  // namespace

std::vector<Candidate> moves_from(const Candidate& candidate, const OpenChoices& open) {
  return CandidateMoves(open).from(candidate);
}

namespace {

// Calls body(factors) for each way to write `product` as that many factors.
template <class Body>
void each_factoring(std::int64_t product, std::size_t count, std::vector<std::int64_t>& factors,
                    Body&& body) {
  if (count == 0) {
    if (product == 1) body(factors);
    return;
  }
  for (std::int64_t factor = 1; factor <= product; ++factor) {
    if (product % factor != 0 || (count == 1 && factor != product)) continue;
    factors.push_back(factor);
    each_factoring(product / factor, count - 1, factors, body);
    factors.pop_back();
  }
}

}  // namespace

std::vector<Candidate> TuneSpace::starts() const {
  const CandidateMaker make(open_);
  std::vector<Candidate> starts;
  std::vector<std::int64_t> factors;
  each_factoring(open_.rest, open_.free.size(), factors, [&](const std::vector<std::int64_t>& extents) {
    for (const std::int64_t global : open_.globals) {
      const std::optional<Candidate> candidate = make.with_extents(extents, global);
      if (!candidate) continue;
      for (const std::int64_t micro : make.micros(*candidate)) {
        starts.push_back(*candidate);
        starts.back().micro = micro;
      }
    }
  });
  return starts;
}

std::vector<Candidate> TuneSpace::freed(const Candidate& candidate) const {
  const CandidateMaker make(open_);
  std::vector<Candidate> all;
  Candidate strongest = candidate, emptied = candidate;
  for (std::size_t part = 0; part < open_.parts.size(); ++part) {
    if (!open_.parts[part].frees) continue;
    if (std::optional<Candidate> one = make.with_all_freed(emptied, part)) all.push_back(emptied = *one);
    std::optional<Candidate> last;
    for (const std::string& value : first_values(open_.parts[part]))
      if (std::optional<Candidate> one = make.with_part(candidate, part, value)) all.push_back(*(last = one));
    if (last) last = make.with_part(strongest, part, first_values(open_.parts[part]).back());
    if (!last) continue;
    strongest = *last;
    all.push_back(strongest);
  }
  return all;
}

std::vector<Candidate> TuneSpace::orders(const Candidate& candidate) const {
  std::vector<std::size_t> free;
  for (std::size_t i = 0; i < candidate.mesh.size(); ++i)
    if (candidate.mesh[i].extent > 1) free.push_back(i);
  std::vector<std::size_t> order = free;
  std::vector<Candidate> all;
  while (std::next_permutation(order.begin(), order.end())) {
    all.push_back(candidate);
    for (std::size_t i = 0; i < free.size(); ++i) all.back().mesh[free[i]] = candidate.mesh[order[i]];
  }
  return all;
}

}  // namespace prun
