#include "program/requests.hpp"

#include <algorithm>

#include "base/narrow.hpp"

namespace prun {
namespace {

// Returns the axes whose ranks have a secondary copy of parameters among them.
std::vector<AxisId> secondary_axes(const Mesh& mesh, const ShardRequest& request, Array<Text> named) {
  if (!request.parameters)
    throw_error(ErrorCode::bad_input, "cannot keep a secondary copy of parameters over axis '",
                named.begin()->view(),
                "': no parameters are sharded; shard them first "
                "(strategy zero, stage = 3)");
  std::vector<AxisId> axes;
  for (const Text& axis : named) {
    const std::vector<AxisId> found = mesh.all_of(axis.view());
    if (found.empty() || std::count(request.axes.begin(), request.axes.end(), found.front()) == 0)
      throw_error(ErrorCode::bad_input, "cannot keep a secondary copy of parameters over axis '", axis.view(),
                  "': they are not sharded over it; name some "
                  "of the axes that they are sharded over");
    axes.insert(axes.end(), found.begin(), found.end());
  }
  // Ranks that have a copy have neighbouring shards of it.
  for (const AxisId axis : request.axes)
    for (const AxisId copied : axes)
      if (axis > copied && std::count(axes.begin(), axes.end(), axis) == 0)
        throw_error(ErrorCode::bad_input, "cannot keep a secondary copy of parameters over axis '",
                    mesh.name(copied), "': axis '", mesh.name(axis),
                    "', over which they are sharded too, is named after it in [mesh]; name the last of these "
                    "axes, or put '",
                    mesh.name(copied), "' last");
  return axes;
}

}  // namespace

void Requests::shard_state(const Mesh& mesh, Array<Text> axes, const Sharded& asked,
                           const std::string& asked_by) {
  ShardRequest request{{}, asked.gradients, asked.parameters, {}, asked_by};
  for (const Text& axis : axes) {
    const std::vector<AxisId> found = mesh.all_of(axis.view());
    if (found.empty())
      throw_error(ErrorCode::bad_input, "the mesh has no axis '", axis.view(), "' to shard state over");
    if (std::count(request.axes.begin(), request.axes.end(), found.front()) != 0)
      throw_error(ErrorCode::bad_input, "axis '", axis.view(), "' is named twice to shard state over");
    request.axes.insert(request.axes.end(), found.begin(), found.end());
  }
  if (request.axes.empty())
    throw_error(ErrorCode::bad_input, "no axis is named to shard state over; name one at least");
  if (shards) throw_error(ErrorCode::bad_input, "two strategies ask to shard state; keep one of them");
  if (asked.secondary.size > 0) request.secondary = secondary_axes(mesh, request, asked.secondary);
  shards = std::move(request);
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

void Requests::keep_state(const UpdatedState& state, const std::string& asked_by) {
  if (optimizer_state)
    throw_error(ErrorCode::unsupported, "cannot keep state '", state.name.view(), "' of each parameter: [",
                optimizer_state->asked_by, "] keeps '", optimizer_state->name,
                "', and there can be one; leave one of them out");
  StateRequest request{
      std::string(state.name.view()), std::string(state.op.view()), {}, state.evaluated, asked_by};
  for (const AttrValue& attr : state.attrs) request.attrs.emplace_back(attr.name, attr.value);
  optimizer_state = std::move(request);
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
  return chosen_of(ways, way_to_fit.strategies, ways_to_fit.strategies);
}

std::size_t Requests::choose_sums_to_fit(const std::vector<std::string>& ways) {
  return chosen_of(ways, way_to_fit.sums, ways_to_fit.sums);
}

std::size_t Requests::chosen_of(const std::vector<std::string>& ways, std::size_t way, std::size_t& count) {
  const std::size_t chosen = std::min(way, ways.size() - 1);
  count = std::max(count, ways.size());
  said_to_fit.push_back(ways[chosen]);
  return chosen;
}

}  // namespace prun
