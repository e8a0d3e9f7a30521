#include "cli/plugin_watch.hpp"

#include <unistd.h>

#include <cstdio>

#include "base/text.hpp"
#include "prun/error.hpp"
#include "train/assemble/batch_arithmetic.hpp"

namespace prun {
namespace {

// Says whether a call may take any time: other ranks find out what waits for them, and data may be large to
// open.
bool may_take_long(const PluginAndWhere& call, std::int64_t world) {
  if (call.plugin.starts_with("data")) return call.where == in_open;
  return call.plugin.starts_with("comm") || (call.plugin.starts_with("device") && world > 1);
}

// Says whether the other ranks will miss this one in an exchange, find where it is, and end together.
bool others_wait_for(const PluginAndWhere& call, std::int64_t world) {
  return world > 1 && (call.plugin.starts_with("data") || call.plugin.starts_with("observer"));
}

// Describes the circumstances. A device runs the kernels of other plugins, so this says what it was doing,
// and whose they may be.
std::string circumstances(const PluginAndWhere& call, const FlightRecorder& flight,
                          const std::vector<std::string>& op_plugins) {
  const FlightSnapshot snapshot = flight.snapshot();
  if (!call.plugin.starts_with("device") || snapshot.step < 0) return "";
  std::string text = "; " + it_was(describe_flight(snapshot));
  if (!op_plugins.empty()) text += "; it may be a kernel of op plugin " + join(op_plugins, ", ");
  return text;
}

}  // namespace

std::unique_ptr<OverdueWatch> watch_over_plugins(const Recipe& recipe, const FlightRecorder& flight) {
  const std::int64_t world = mesh_of(recipe).world();
  // Ranks that wait for each other end each other after the limit, so what blocks one is reported before
  // that.
  const std::chrono::milliseconds limit(recipe.integer("run.hang_limit") * (world > 1 ? 800 : 1000));
  if (limit.count() == 0) return nullptr;
  const auto found = [world, op_plugins = recipe.texts("plugins.ops"), limit,
                      &flight](const PluginAndWhere& call) {
    if (may_take_long(call, world)) return;
    std::fprintf(
        stderr,
        "prun: %s hangs %s: it has not come back for %g s (run.hang_limit)%s; mend the plugin or leave "
        "it out of the recipe\n",
        call.plugin.c_str(), call.where.c_str(), static_cast<double>(limit.count()) / 1000,
        circumstances(call, flight, op_plugins).c_str());
    if (!others_wait_for(call, world)) ::_exit(exit_code(ErrorCode::hang));
  };
  return std::make_unique<OverdueWatch>(limit, found);
}

}  // namespace prun
