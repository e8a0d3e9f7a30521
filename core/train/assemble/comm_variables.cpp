#include "train/assemble/comm_variables.hpp"

#include <cstdlib>
#include <set>

#include "plugin/traits.hpp"
#include "train/assemble/batch_arithmetic.hpp"
#include "train/assemble/comm_needs.hpp"

namespace prun {
namespace {

namespace fs = std::filesystem;

constexpr const char* system_shared_memory = "/dev/shm";

// Returns the plugins of the axes along which ranks exchange.
std::set<std::string> comm_plugins(const Recipe& recipe, PluginHost& plugins) {
  std::set<std::string> names;
  const Mesh mesh = mesh_of(recipe);
  for (const Axis& axis : mesh.axes())
    if (axis.extent > 1) names.insert(comm_of_axis(recipe, plugins, axis.name));
  return names;
}

}  // namespace

std::vector<std::string> shared_folder_variables(const Recipe& recipe, PluginHost& plugins) {
  std::vector<std::string> variables;
  for (const std::string& name : comm_plugins(recipe, plugins))
    if (const std::string_view stated = trait_of(plugins.note("comm", name), "shared_folder");
        !stated.empty())
      variables.emplace_back(stated);
  return variables;
}

fs::path shared_memory_folder(const Recipe& recipe, PluginHost& plugins) {
  for (const std::string& variable : shared_folder_variables(recipe, plugins))
    if (const char* const chosen = std::getenv(variable.c_str())) return chosen;
  return system_shared_memory;
}

std::vector<std::pair<std::string, std::string>> log_variables(const Recipe& recipe, PluginHost& plugins,
                                                               const fs::path& folder) {
  std::vector<std::pair<std::string, std::string>> variables;
  for (const std::string& name : comm_plugins(recipe, plugins))
    if (const std::string_view stated = trait_of(plugins.note("comm", name), "log"); !stated.empty())
      variables.emplace_back(stated, fs::absolute(folder / (name + ".log")));
  return variables;
}

}  // namespace prun
