#include "launch/rank_environment.hpp"

#include <unistd.h>

#include <map>

namespace prun {
namespace {

// Variables that other launchers have set for ranks would contradict this launch.
constexpr const char* foreign_variables[] = {"RANK",
                                             "WORLD_SIZE",
                                             "LOCAL_RANK",
                                             "LOCAL_WORLD_SIZE",
                                             "SLURM_PROCID",
                                             "SLURM_LOCALID",
                                             "OMPI_COMM_WORLD_RANK",
                                             "OMPI_COMM_WORLD_SIZE",
                                             "PRUN_LAUNCHER",
                                             "OMPI_COMM_WORLD_LOCAL_RANK",
                                             "OMPI_COMM_WORLD_LOCAL_SIZE"};

std::map<std::string, std::string> own_environment() {
  std::map<std::string, std::string> variables;
  for (char** at = environ; *at; ++at) {
    const std::string_view line(*at);
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos)
      variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  return variables;
}

}  // namespace

std::vector<std::string> environment_of_rank(const LaunchOptions& options, int rank,
                                             const std::string& shared_folder, int socket, int record) {
  std::map<std::string, std::string> variables = own_environment();
  for (const char* name : foreign_variables) variables.erase(name);
  if (!shared_folder.empty())
    for (const std::string& name : options.shared_folder_variables)
      variables.try_emplace(name, shared_folder);
  for (const auto& [name, value] : options.environment) variables[name] = value;
  const std::string own = options.share ? "" : "PRUN_";
  variables[own + "RANK"] = std::to_string(options.number_of(rank));
  variables[own + "LOCAL_RANK"] = std::to_string(rank);
  variables[own + (options.share ? "WORLD_SIZE" : "WORLD")] = std::to_string(options.world());
  variables[own + (options.share ? "LOCAL_WORLD_SIZE" : "LOCAL_WORLD")] = std::to_string(options.ranks);
  if (!options.share) {
    variables["PRUN_RENDEZVOUS"] = "fd:" + std::to_string(socket);
    variables["PRUN_FLIGHT_FD"] = std::to_string(record);
  }
  std::vector<std::string> out;
  for (const auto& [name, value] : variables) out.push_back(name + "=" + value);
  return out;
}

}  // namespace prun
