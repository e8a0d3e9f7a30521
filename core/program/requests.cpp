#include "program/requests.hpp"

#include <algorithm>

#include "base/narrow.hpp"

namespace prun {

void Requests::keep_in_parts(const Mesh& mesh, const std::vector<std::string_view>& axes, KeptInParts asked) {
  PartsRequest request{{}, asked};
  for (const std::string_view axis : axes) {
    const std::vector<AxisId> found = mesh.all_of(axis);
    if (found.empty())
      throw_error(ErrorCode::bad_input, "the mesh has no axis '", axis, "' to keep state in parts over");
    if (std::find(request.axes.begin(), request.axes.end(), found.front()) != request.axes.end())
      throw_error(ErrorCode::bad_input, "axis '", axis, "' is named twice to keep state in parts over");
    request.axes.insert(request.axes.end(), found.begin(), found.end());
  }
  if (request.axes.empty())
    throw_error(ErrorCode::bad_input, "no axis is named to keep state in parts over; name one at least");
  if (!parts.empty())
    throw_error(ErrorCode::bad_input, "two strategies ask to keep state in parts; keep one of them");
  parts.push_back(std::move(request));
}

void Requests::copy_within(const Mesh& mesh, const std::vector<std::string_view>& axes) {
  if (parts.empty() || !parts.front().kept.parameters)
    throw_error(ErrorCode::bad_input, "ranks of axis '", axes.empty() ? "" : axes.front(),
                "' are to have a copy of parameters among them, and no parameters are kept in parts; keep "
                "them so first (strategy zero, stage = 3)");
  PartsRequest& request = parts.front();
  for (const std::string_view axis : axes) {
    const std::vector<AxisId> found = mesh.all_of(axis);
    if (found.empty() || std::count(request.axes.begin(), request.axes.end(), found.front()) == 0)
      throw_error(ErrorCode::bad_input, "ranks of axis '", axis,
                  "' are to have a copy of parameters among them, and these are not kept in parts over it; "
                  "name some of the axes that they are kept in parts over");
    request.copy_axes.insert(request.copy_axes.end(), found.begin(), found.end());
  }
  // Ranks that have a copy have neighbouring parts of it.
  for (const AxisId axis : request.axes)
    for (const AxisId copied : request.copy_axes)
      if (axis > copied && std::count(request.copy_axes.begin(), request.copy_axes.end(), axis) == 0)
        throw_error(ErrorCode::bad_input, "ranks of axis '", mesh.name(copied),
                    "' are to have a copy of parameters among them, and axis '", mesh.name(axis),
                    "', over which these are kept in parts too, stands behind it in [mesh]; name the last of "
                    "these axes, or put '",
                    mesh.name(copied), "' last");
}

void Requests::lay_pipeline(const Mesh& mesh, std::string_view axis, std::string_view schedule,
                            std::int32_t chunks, std::vector<std::int64_t> layers) {
  const AxisId found = mesh.find(axis);
  if (found == no_axis)
    throw_error(ErrorCode::bad_input, "the mesh has no axis '", axis, "' to lay a pipeline along");
  if (mesh.all_of(axis).size() > 1)
    throw_error(ErrorCode::bad_input, "axis '", axis,
                "' splits heads and, beyond those, queries; a pipeline takes "
                "an axis of its own");
  if (pipeline) throw_error(ErrorCode::bad_input, "two strategies ask for a pipeline; keep one of them");
  if (chunks < 1) throw_error(ErrorCode::bad_input, "a rank holds at least one chunk, not ", chunks);
  pipeline = PipelineRequest{found, std::string(schedule), chunks, std::move(layers)};
}

std::int32_t Requests::add_device(std::string_view plugin) {
  more_devices.emplace_back(plugin);
  return narrow<std::int32_t>(more_devices.size());
}

std::int32_t Requests::add_tier(std::string_view plugin) {
  if (known_tiers.check) known_tiers.check(plugin);
  return add_device(plugin);
}

Array<Text> Requests::tiers_of_recipe() {
  if (!tiers) tiers = known_tiers.of_recipe ? known_tiers.of_recipe() : std::vector<std::string>{};
  tier_texts.assign(tiers->begin(), tiers->end());
  return {tier_texts.data(), tier_texts.size()};
}

std::size_t Requests::choose_to_fit(const std::vector<std::string>& ways) {
  if (ways.empty()) throw_error(ErrorCode::bad_input, "there is no way to choose from");
  const std::size_t chosen = std::min(way_to_fit, ways.size() - 1);
  ways_to_fit = std::max(ways_to_fit, ways.size());
  said_to_fit.push_back(ways[chosen]);
  return chosen;
}

}  // namespace prun
