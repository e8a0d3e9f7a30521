#include "train/tune/space.hpp"

#include <algorithm>
#include <tuple>

#include "base/text.hpp"
#include "plugin/traits.hpp"
#include "train/assemble/automatic.hpp"
#include "train/assemble/batch_arithmetic.hpp"

namespace prun {
namespace {

constexpr std::int64_t largest_micro = 64;

// Whether somebody wrote a value, and not that it is left open.
bool is_said(const recipe::Entry& entry) {
  if (!entry.at.source || !entry.value) return false;
  const auto* const text = std::get_if<std::string>(&*entry.value);
  return !text || *text != automatic;
}

// As --set takes it; what is left open is the first.
std::string value_in(const Recipe& recipe, const std::string& path, const VariedOption& variable) {
  const recipe::Entry& entry = recipe.entry(path);
  if (!entry.value) return variable.values.front();
  if (const auto* const text = std::get_if<std::string>(&*entry.value))
    return *text == automatic ? variable.values.front() : *text;
  return recipe::to_toml(*entry.value);
}

std::size_t place_of_phase(const std::string& phase) {
  return static_cast<std::size_t>(std::find(phases.begin(), phases.end(), phase) - phases.begin());
}

// Those that split the batch stand in front of others of their phase.
bool comes_before(const SpacePart& a, const SpacePart& b) {
  const auto key = [](const SpacePart& part) {
    return std::tuple(place_of_phase(part.variables.phase), !part.variables.splits_batch,
                      std::string_view(part.variables.plugin));
  };
  return key(a) < key(b);
}

// Where axes lie on ranks unless another order is better: what exchanges most is innermost.
int depth_of(const SpacePart& part) {
  return part.variables.phase == "partition" ? 0 : part.variables.splits_batch ? 1 : 2;
}

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

const std::vector<VariedOption>& varied_keys() {
  static const std::vector<VariedOption> keys = {
      {"batch.order", {"horizontal", "vertical"}, Exactness::exact},
      {"batch.interleave", {"1", "2"}, Exactness::exact},
      {"run.bundle", {"", "0B", "128MiB"}, Exactness::exact}};
  return keys;
}

TuneSpace::TuneSpace(const Recipe& recipe, PluginHost& plugins, const TuneWish& wish, std::int64_t ranks)
    : pads_(recipe.flag("batch.pad")) {
  read_batches(recipe, wish.most_batch);
  if (is_said(recipe.entry("batch.micro")) && recipe.integer("batch.micro") > 0)
    said_micro_ = recipe.integer("batch.micro");
  add_recipe_parts(recipe, plugins);
  add_others(plugins, wish.rounding);
  keep_options(recipe, wish.rounding);
  read_mesh(recipe);
  set_ranks(ranks);
  read_keys(recipe);
}

void TuneSpace::add_recipe_parts(const Recipe& recipe, PluginHost& plugins) {
  const std::vector<RecipeSection> strategies = recipe.strategies();
  for (std::size_t i = 0; i < strategies.size(); ++i) {
    const PluginNote& note = plugins.note("strategy", strategies[i].plugin());
    SpacePart part{variables_of(note, plugins), i, "", !trait_of(note, "frees").empty()};
    if (const std::optional<std::string> axis = axis_of(strategies[i])) part.axis = *axis;
    if (!part.variables.added)
      left_out_.push_back(
          "strategy '" + note.name +
          "' stays as the recipe has it: its note does not say what may be varied (trait tune)");
    for (const std::string& key : part.variables.never)
      left_out_.push_back("strategy '" + note.name + "' keeps its " + key +
                          ": with another it computes something else");
    parts_.push_back(std::move(part));
  }
}

// An axis of that name may be another strategy's.
void TuneSpace::add_others(PluginHost& plugins, bool rounding) {
  std::vector<SpacePart> others;
  for (const std::string& name : plugins.catalog().names("strategy")) {
    const auto is_it = [&](const SpacePart& part) { return part.variables.plugin == name; };
    if (std::any_of(parts_.begin(), parts_.end(), is_it)) continue;
    std::string why;
    try {
      const PluginNote& note = plugins.note("strategy", name);
      SpacePart part{variables_of(note, plugins), {}, "", !trait_of(note, "frees").empty()};
      part.axis = part.variables.own_axis;
      if (!part.variables.added)
        why = "its note does not say what adding it comes to (trait tune)";
      else if (*part.variables.added == Exactness::changes)
        why = "it computes something else";
      else if (*part.variables.added == Exactness::rounds && !rounding)
        why = "it rounds otherwise, which --rounding allows";
      if (why.empty()) others.push_back(std::move(part));
    } catch (const Error& error) {
      why = std::string(first_line(error.what()));
    }
    if (!why.empty()) left_out_.push_back(detail::concat("strategy '", name, "' is not added: ", why));
  }
  std::sort(others.begin(), others.end(), comes_before);
  for (SpacePart& part : others) {
    const auto has_axis = [&](const SpacePart& other) {
      return other.brings_axis() && other.axis == part.axis;
    };
    if (part.brings_axis() && std::any_of(parts_.begin(), parts_.end(), has_axis))
      part.axis = part.variables.plugin;
    parts_.push_back(std::move(part));
  }
}

// Of the recipe's, those that it does not say.
void TuneSpace::keep_options(const Recipe& recipe, bool rounding) {
  for (SpacePart& part : parts_) {
    std::erase_if(part.variables.options, [&](const VariedOption& variable) {
      if (variable.exactness == Exactness::rounds && !rounding) {
        left_out_.push_back("strategy '" + part.variables.plugin + "' keeps its " + variable.key +
                            ": others round otherwise, which --rounding allows");
        return true;
      }
      return part.place && is_said(recipe.entry(detail::concat("strategy.", *part.place, ".", variable.key)));
    });
    for (const VariedOption& variable : part.variables.options)
      part.initial[variable.key] =
          part.place ? value_in(recipe, detail::concat("strategy.", *part.place, ".", variable.key), variable)
                     : variable.values.front();
  }
}

void TuneSpace::read_mesh(const Recipe& recipe) {
  said_mesh_ = mesh_of(recipe).axes();
  for (std::size_t part = 0; part < parts_.size(); ++part)
    if (is_free(parts_[part])) free_.push_back(part);
}

// Its extent is looked for: of an axis that several use, by the first of them.
bool TuneSpace::is_free(const SpacePart& part) const {
  if (!part.brings_axis() || part.axis.empty()) return false;
  const auto is_said_axis = [&](const Axis& axis) { return axis.name == part.axis; };
  if (std::any_of(said_mesh_.begin(), said_mesh_.end(), is_said_axis)) return false;
  const auto first = std::find_if(parts_.begin(), parts_.end(), [&](const SpacePart& other) {
    return other.brings_axis() && other.axis == part.axis;
  });
  return &*first == &part;
}

void TuneSpace::set_ranks(std::int64_t ranks) {
  const std::int64_t said = Mesh(said_mesh_).world();
  ranks_ = ranks;
  if (ranks % said != 0 || (free_.empty() && ranks != said))
    throw_error(ErrorCode::bad_input, "the recipe's mesh has ", said, " ranks, which ", ranks,
                free_.empty() ? " are not, and no strategy takes more; change [mesh] or the ranks"
                              : " is no multiple of; change [mesh] or the ranks");
  rest_ = ranks / said;
}

// Twice as much again and again, and the most.
void TuneSpace::read_batches(const Recipe& recipe, std::int64_t most) {
  const std::int64_t said = recipe.integer("batch.global");
  if (most > 0 && most < said)
    throw_error(ErrorCode::bad_input, "batch.global is ", said, " and cannot grow to ", most,
                "; give more, or a recipe with a smaller batch");
  globals_ = {said};
  while (globals_.back() < most) globals_.push_back(std::min(most, 2 * globals_.back()));
  if (globals_.size() > 1)
    left_out_.push_back("the optimizer stays as it is, whose rate a larger batch may want otherwise");
}

void TuneSpace::read_keys(const Recipe& recipe) {
  for (const VariedOption& key : varied_keys())
    if (!is_said(recipe.entry(key.key))) keys_.push_back(key);
}

// ------------------------------------------------------------------- of a candidate

std::int64_t TuneSpace::extent(const Candidate& candidate, const std::string& axis) const {
  for (const Axis& one : candidate.mesh)
    if (one.name == axis) return one.extent;
  return 1;
}

std::vector<std::string> TuneSpace::batch_axes(const Candidate& candidate) const {
  std::vector<std::string> axes;
  for (std::size_t part = 0; part < parts_.size(); ++part)
    if (candidate.there[part] && parts_[part].variables.splits_batch &&
        extent(candidate, parts_[part].axis) > 1)
      axes.push_back(parts_[part].axis);
  return axes;
}

std::int64_t TuneSpace::batch_ranks(const Candidate& candidate) const {
  std::int64_t ranks = 1;
  for (const std::string& axis : batch_axes(candidate)) ranks *= extent(candidate, axis);
  return ranks;
}

// Powers of two that share the batch out evenly, and all that a rank has of it.
std::vector<std::int64_t> TuneSpace::micros(const Candidate& candidate) const {
  if (said_micro_) return {*said_micro_};
  const std::int64_t ranks = batch_ranks(candidate);
  if (candidate.global % ranks != 0 && !pads_) return {};
  const std::int64_t own = std::max<std::int64_t>(1, candidate.global / ranks);
  std::vector<std::int64_t> micros;
  for (std::int64_t micro = 1; micro <= std::min(own, largest_micro); micro *= 2)
    if (own % micro == 0 || pads_) micros.push_back(micro);
  if (own <= largest_micro && micros.back() != own) micros.push_back(own);
  return micros;
}

std::vector<std::int64_t> TuneSpace::free_extents(const Candidate& candidate) const {
  std::vector<std::int64_t> extents;
  for (const std::size_t part : free_) extents.push_back(extent(candidate, parts_[part].axis));
  return extents;
}

// Strategies of axes with one rank are left out, unless the recipe has them.
std::optional<Candidate> TuneSpace::with_extents(const std::vector<std::int64_t>& extents,
                                                 std::int64_t global) const {
  Candidate candidate;
  candidate.global = global;
  candidate.mesh = said_mesh_;
  candidate.there.resize(parts_.size());
  candidate.options.resize(parts_.size());
  for (std::size_t part = 0; part < parts_.size(); ++part)
    if (parts_[part].place) {
      candidate.there[part] = true;
      candidate.options[part] = parts_[part].initial;
    }
  std::vector<std::pair<int, Axis>> brought;
  for (std::size_t i = 0; i < free_.size(); ++i) {
    const SpacePart& part = parts_[free_[i]];
    if (extents[i] == 1 && !part.place) continue;
    candidate.there[free_[i]] = true;
    brought.emplace_back(depth_of(part), Axis{part.axis, extents[i]});
    candidate.options[free_[i]] = part.initial;
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

std::vector<Candidate> TuneSpace::starts() const {
  std::vector<Candidate> starts;
  std::vector<std::int64_t> factors;
  each_factoring(rest_, free_.size(), factors, [&](const std::vector<std::int64_t>& extents) {
    for (const std::int64_t global : globals_) {
      const std::optional<Candidate> candidate = with_extents(extents, global);
      if (!candidate) continue;
      for (const std::int64_t micro : micros(*candidate)) {
        starts.push_back(*candidate);
        starts.back().micro = micro;
      }
    }
  });
  return starts;
}

// With one of its variables at a value; those after it at their first.
std::optional<Candidate> TuneSpace::with_part(Candidate candidate, std::size_t number,
                                              const std::string& value) const {
  const SpacePart& part = parts_[number];
  if (candidate.there[number] || part.place || part.brings_axis()) return {};
  if (part.variables.axis == AxisUse::batch && batch_axes(candidate).empty()) return {};
  candidate.there[number] = true;
  candidate.options[number] = part.initial;
  if (!part.variables.options.empty()) candidate.options[number][part.variables.options.front().key] = value;
  return candidate;
}

namespace {

std::vector<std::string> first_values(const SpacePart& part) {
  return part.variables.options.empty() ? std::vector<std::string>{""}
                                        : part.variables.options.front().values;
}

}  // namespace

std::vector<Candidate> TuneSpace::freed(const Candidate& candidate) const {
  std::vector<Candidate> all;
  Candidate strongest = candidate;
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    if (!parts_[part].frees) continue;
    std::optional<Candidate> last;
    for (const std::string& value : first_values(parts_[part]))
      if (std::optional<Candidate> one = with_part(candidate, part, value)) all.push_back(*(last = one));
    if (last) last = with_part(strongest, part, first_values(parts_[part]).back());
    if (!last) continue;
    strongest = *last;
    all.push_back(strongest);
  }
  return all;
}

// ------------------------------------------------------------------- moves

// Where the batch is shared out otherwise, the microbatch goes with it.
void TuneSpace::settle_micro(Candidate& candidate) const {
  const std::vector<std::int64_t> all = micros(candidate);
  if (all.empty()) return;
  std::int64_t best = all.front();
  for (const std::int64_t micro : all)
    if (micro <= candidate.micro) best = micro;
  candidate.micro = best;
}

// A prime factor goes from one axis to another.
void TuneSpace::add_axis_moves(const Candidate& candidate, std::vector<Candidate>& moves) const {
  const std::vector<std::int64_t> extents = free_extents(candidate);
  for (std::size_t from = 0; from < free_.size(); ++from)
    for (std::int64_t factor = 2; factor <= extents[from]; ++factor) {
      if (extents[from] % factor != 0) continue;
      bool prime = true;
      for (std::int64_t d = 2; d * d <= factor; ++d) prime = prime && factor % d != 0;
      for (std::size_t to = 0; prime && to < free_.size(); ++to) {
        if (to == from) continue;
        std::vector<std::int64_t> changed = extents;
        changed[from] /= factor;
        changed[to] *= factor;
        std::optional<Candidate> next = with_extents(changed, candidate.global);
        if (!next) continue;
        next->keys = candidate.keys;
        next->micro = candidate.micro;
        const bool shares = !batch_axes(*next).empty();
        for (std::size_t part = 0; part < parts_.size(); ++part) {
          const bool goes = parts_[part].variables.axis == AxisUse::batch && !shares && !parts_[part].place;
          if (parts_[part].brings_axis() && !next->there[part]) continue;
          if (!parts_[part].brings_axis()) next->there[part] = candidate.there[part] && !goes;
          if (candidate.there[part] && next->there[part]) next->options[part] = candidate.options[part];
        }
        settle_micro(*next);
        moves.push_back(std::move(*next));
      }
    }
}

void TuneSpace::add_part_moves(const Candidate& candidate, std::vector<Candidate>& moves) const {
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    const SpacePart& of = parts_[part];
    for (const std::string& value : first_values(of))
      if (std::optional<Candidate> added = with_part(candidate, part, value))
        moves.push_back(std::move(*added));
    if (!candidate.there[part]) continue;
    if (!of.place && !of.brings_axis()) {
      Candidate without = candidate;
      without.there[part] = false;
      without.options[part].clear();
      moves.push_back(std::move(without));
    }
    for (const VariedOption& variable : of.variables.options)
      for (const std::string& value : variable.values) {
        const auto now = candidate.options[part].find(variable.key);
        if (now != candidate.options[part].end() && now->second == value) continue;
        Candidate changed = candidate;
        changed.options[part][variable.key] = value;
        moves.push_back(std::move(changed));
      }
  }
}

void TuneSpace::add_batch_moves(const Candidate& candidate, std::vector<Candidate>& moves) const {
  for (const std::int64_t micro : micros(candidate))
    if (micro != candidate.micro) {
      moves.push_back(candidate);
      moves.back().micro = micro;
    }
  for (const std::int64_t global : globals_) {
    Candidate other = candidate;
    other.global = global;
    if (global == candidate.global || batch_ranks(other) > global || micros(other).empty()) continue;
    settle_micro(other);
    moves.push_back(std::move(other));
  }
}

std::vector<Candidate> TuneSpace::moves(const Candidate& candidate) const {
  std::vector<Candidate> moves;
  add_batch_moves(candidate, moves);
  add_part_moves(candidate, moves);
  for (const VariedOption& key : keys_)
    for (const std::string& value : key.values) {
      const auto now = candidate.keys.find(key.key);
      if ((now == candidate.keys.end() ? key.values.front() : now->second) == value) continue;
      moves.push_back(candidate);
      moves.back().keys[key.key] = value;
    }
  add_axis_moves(candidate, moves);
  // Two settings of one strategy may go together alone, such as a schedule and its chunks.
  const std::size_t single = moves.size();
  for (std::size_t i = 0; i < single; ++i)
    for (std::size_t part = 0; part < parts_.size(); ++part) {
      if (moves[i].there != candidate.there || moves[i].options[part] == candidate.options[part]) continue;
      std::vector<Candidate> further;
      for (const VariedOption& variable : parts_[part].variables.options)
        for (const std::string& value : variable.values) {
          if (moves[i].options[part][variable.key] != candidate.options[part].at(variable.key)) continue;
          if (candidate.options[part].at(variable.key) == value) continue;
          further.push_back(moves[i]);
          further.back().options[part][variable.key] = value;
        }
      for (Candidate& one : further)
        if (std::find(moves.begin(), moves.end(), one) == moves.end()) moves.push_back(std::move(one));
    }
  return moves;
}

std::vector<Candidate> TuneSpace::orders(const Candidate& candidate) const {
  std::vector<std::size_t> free;
  for (std::size_t i = said_mesh_.size(); i < candidate.mesh.size(); ++i)
    if (candidate.mesh[i].extent > 1) free.push_back(i);
  std::vector<std::size_t> order = free;
  std::vector<Candidate> all;
  while (std::next_permutation(order.begin(), order.end())) {
    all.push_back(candidate);
    for (std::size_t i = 0; i < free.size(); ++i) all.back().mesh[free[i]] = candidate.mesh[order[i]];
  }
  return all;
}

// ------------------------------------------------------------------- words

std::vector<std::string> TuneSpace::sets(const Candidate& candidate) const {
  std::vector<std::string> sets;
  for (const Axis& axis : candidate.mesh)
    sets.push_back(detail::concat("mesh.", axis.name, "=", axis.extent));
  if (globals_.size() > 1) sets.push_back(detail::concat("batch.global=", candidate.global));
  sets.push_back(detail::concat("batch.micro=", candidate.micro));
  for (const VariedOption& key : keys_) {
    const auto chosen = candidate.keys.find(key.key);
    sets.push_back(key.key + "=" + (chosen == candidate.keys.end() ? key.values.front() : chosen->second));
  }
  std::size_t next = 0;
  for (const SpacePart& part : parts_) next += part.place.has_value();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!candidate.there[i]) continue;
    const SpacePart& part = parts_[i];
    const std::string at = detail::concat("strategy.", part.place ? *part.place : next++, ".");
    if (!part.place) {
      sets.push_back(at + "plugin=" + part.variables.plugin);
      if (part.brings_axis()) sets.push_back(at + "axis=" + part.axis);
      const std::vector<std::string> axes = batch_axes(candidate);
      if (part.variables.axis == AxisUse::batch)
        sets.push_back(at + "axis=" +
                       (axes.size() > 1 && part.variables.many_axes ? recipe::to_toml(recipe::Value(axes))
                                                                    : axes.front()));
    }
    for (const auto& [key, value] : candidate.options[i]) sets.push_back(detail::concat(at, key, "=", value));
  }
  return sets;
}

std::string TuneSpace::text(const Candidate& candidate) const {
  std::vector<std::string> mesh, rest;
  for (const Axis& axis : candidate.mesh)
    if (axis.extent > 1) mesh.push_back(detail::concat(axis.name, " ", axis.extent));
  rest.push_back(mesh.empty() ? std::string("one rank") : join(mesh, " x "));
  if (globals_.size() > 1) rest.push_back(detail::concat("batch ", candidate.global));
  rest.push_back(detail::concat("micro ", candidate.micro));
  for (const auto& [key, value] : candidate.keys)
    rest.push_back(key.substr(key.find('.') + 1) + " " + (value.empty() ? "as usual" : value));
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!candidate.there[i] || candidate.options[i].empty()) continue;
    std::string said = parts_[i].variables.plugin;
    for (const auto& [key, value] : candidate.options[i]) said += detail::concat(" ", key, " ", value);
    rest.push_back(said);
  }
  return join(rest, ", ");
}

}  // namespace prun
