#include "train/tune/candidate_words.hpp"

#include "base/text.hpp"
#include "train/tune/candidate_maker.hpp"

namespace prun {

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
    for (const auto& [key, value] : candidate.options[i]) said += detail::concat(" ", key, " ", value);
    rest.push_back(said);
  }
  return join(rest, ", ");
}

}  // namespace prun
