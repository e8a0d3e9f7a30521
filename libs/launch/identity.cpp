// Reads the variables of each launcher, and then compares the results.
#include "launch/identity.hpp"

#include <charconv>
#include <cstdlib>
#include <vector>

#include "base/random.hpp"
#include "base/text.hpp"
#include "launch/rendezvous_frames.hpp"
#include "prun/error.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- slurm list

[[noreturn]] void malformed(std::string_view list, std::string_view variable) {
  throw_error(ErrorCode::bad_input, "environment variable ", variable, ": ", in_quotes(list),
              " is not a list as Slurm writes it");
}

// Takes a number from the front of the text.
bool take_number(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, std::string_view start) {
  if (!text.starts_with(start)) return false;
  text.remove_prefix(start.size());
  return true;
}

bool is_host_name(std::string_view name) {
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
  return !name.empty() && name.find_first_not_of(allowed) == std::string_view::npos;
}

}  // namespace

// Returns the first host: a bracket stands for its first number, with the zeros it is written with.
std::string first_slurm_host(std::string_view list, std::string_view variable) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ',';) {
    if (list[at] != '[') {
      host += list[at++];
      continue;
    }
    const std::size_t close = list.find(']', at);
    if (close == std::string_view::npos) malformed(list, variable);
    const std::string_view inside = list.substr(at + 1, close - at - 1);
    const std::string_view number = inside.substr(0, inside.find_first_of(",-"));
    if (number.empty() || number.find_first_not_of("0123456789") != std::string_view::npos)
      malformed(list, variable);
    host += number;
    at = close + 1;
  }
  if (!is_host_name(host)) malformed(list, variable);
  return host;
}

int slurm_tasks_of_node(std::string_view list, int node, std::string_view variable) {
  std::string_view rest = list;
  for (long first = 0;;) {
    int tasks = 0, nodes = 1;
    if (!take_number(rest, tasks) || tasks == 0) malformed(list, variable);
    if (take(rest, "(x") && (!take_number(rest, nodes) || nodes == 0 || !take(rest, ")")))
      malformed(list, variable);
    if (node < first + nodes) return tasks;
    first += nodes;
    if (!take(rest, ",")) break;
  }
  if (!rest.empty()) malformed(list, variable);
  throw_error(ErrorCode::bad_input, "environment variable ", variable, ": ", in_quotes(list), " has no node ",
              node);
}

namespace {

// ------------------------------------------------------------------- identity

constexpr int torchrun_port_offset = 17;

std::optional<int> number(const Environment& environment, const std::string& name, int low, int high) {
  const std::optional<std::string> text = environment(name);
  if (!text) return {};
  int value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < low || value > high)
    throw_error(ErrorCode::bad_input, "environment variable ", name, ": ", in_quotes(*text),
                " is not a whole number from ", low, " to ", high);
  return value;
}

int needed(const Environment& environment, const std::string& name, int low, int high, const char* because) {
  if (const std::optional<int> value = number(environment, name, low, high)) return *value;
  throw_error(ErrorCode::bad_input, "environment variable ", name, " is not set, but ", because, " is");
}

// Names the variables of a launcher that states everything in four numbers.
struct Names {
  const char *how, *rank, *world, *local_rank, *local_world;
};
constexpr Names prun_names = {"prun", "PRUN_RANK", "PRUN_WORLD", "PRUN_LOCAL_RANK", "PRUN_LOCAL_WORLD"};
constexpr Names torchrun_names = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names mpirun_names = {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};

Identity read(const Environment& environment, const Names& names) {
  Identity who;
  who.how = names.how;
  who.world = needed(environment, names.world, 1, world_limit, names.rank);
  who.rank = needed(environment, names.rank, 0, who.world - 1, names.world);
  who.local_world = needed(environment, names.local_world, 1, who.world, names.rank);
  who.local_rank = needed(environment, names.local_rank, 0, who.local_world - 1, names.rank);
  return who;
}

std::optional<Identity> from_prun(const Environment& environment) {
  if (!environment("PRUN_RANK")) return {};
  return read(environment, prun_names);
}

// Requires both names: either one alone is common for other reasons.
bool has_rank_and_world(const Environment& environment) {
  return environment("RANK") && environment("WORLD_SIZE");
}

bool is_pod(const Environment& environment) {
  return has_rank_and_world(environment) && environment("MASTER_ADDR") && !environment("LOCAL_RANK") &&
         !environment("LOCAL_WORLD_SIZE");
}

std::optional<Identity> from_torchrun(const Environment& environment) {
  if (!has_rank_and_world(environment) || is_pod(environment)) return {};
  return read(environment, torchrun_names);
}

// Reads a pod's variables: WORLD_SIZE counts pods or, with newer operators, the processes that torchrun would
// start in them.
std::optional<Identity> from_kubernetes(const Environment& environment) {
  if (!is_pod(environment)) return {};
  const bool newer = environment("PET_NNODES") && environment("PET_NODE_RANK");
  const char* const pods = newer ? "PET_NNODES" : "WORLD_SIZE";
  const char* const number_of_pod = newer ? "PET_NODE_RANK" : "RANK";
  Identity who;
  who.how = "kubernetes";
  who.world = needed(environment, pods, 1, world_limit, number_of_pod);
  if (who.world == 1) return {};
  who.rank = needed(environment, number_of_pod, 0, who.world - 1, pods);
  return who;
}

std::optional<Identity> from_mpirun(const Environment& environment) {
  if (!environment("OMPI_COMM_WORLD_RANK")) return {};
  return read(environment, mpirun_names);
}

int slurm_local_world(const Environment& environment) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"}) {
    const std::optional<std::string> list = environment(name);
    if (!list) continue;
    const int node = number(environment, "SLURM_NODEID", 0, world_limit).value_or(0);
    return slurm_tasks_of_node(*list, node, name);
  }
  throw_error(ErrorCode::bad_input,
              "environment variable SLURM_STEP_TASKS_PER_NODE is not set, but SLURM_PROCID is; "
              "start the ranks with srun");
}

std::optional<Identity> from_srun(const Environment& environment) {
  if (!environment("SLURM_PROCID") || !environment("SLURM_STEP_ID")) return {};
  const char* world_name = environment("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  Identity who;
  who.how = "srun";
  who.world = needed(environment, world_name, 1, world_limit, "SLURM_PROCID");
  if (who.world == 1) return {};
  who.rank = needed(environment, "SLURM_PROCID", 0, who.world - 1, world_name);
  who.local_world = slurm_local_world(environment);
  if (who.local_world > who.world)
    throw_error(ErrorCode::bad_input, "Slurm's variables say ", who.local_world, " tasks on this node, but ",
                world_name, " is ", who.world);
  who.local_rank = needed(environment, "SLURM_LOCALID", 0, who.local_world - 1, "SLURM_PROCID");
  return who;
}

// ------------------------------------------------------------------- where rank 0 listens

std::string slurm_first_host(const Environment& environment) {
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_NODELIST"})
    if (const auto list = environment(name)) return first_slurm_host(*list, name);
  return environment("SLURM_LAUNCH_NODE_IPADDR").value_or("");
}

std::string master_host(const Environment& environment, const Identity& who) {
  for (const char* name : {"PRUN_MASTER", "MASTER_ADDR"})
    if (const auto host = environment(name); host && !host->empty()) return *host;
  if (who.one_host()) return "127.0.0.1";
  std::string host = who.how == "srun" ? slurm_first_host(environment) : std::string();
  if (host.empty())
    throw_error(ErrorCode::bad_input, "the run spans several hosts and ", who.how,
                " does not say where rank 0 is; set PRUN_MASTER to its host name or address on every rank");
  return host;
}

// Returns a port made from the name of the job, so that runs on one host do not meet.
int port_of_job(const Environment& environment) {
  std::string job;
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})
    job += environment(name).value_or("") + "/";
  return 20000 + static_cast<int>(stream_id(job) % 10000);
}

int master_port(const Environment& environment, const Identity& who) {
  if (const auto port = number(environment, "PRUN_MASTER_PORT", 1, 65535)) return *port;
  const std::optional<int> port = number(environment, "MASTER_PORT", 1, 65535);
  if (!port) return port_of_job(environment);
  if (who.how != "torchrun") return *port;
  return *port + torchrun_port_offset <= 65535 ? *port + torchrun_port_offset : *port - torchrun_port_offset;
}

// ------------------------------------------------------------------- choosing

std::string said(const Identity& who) {
  return detail::concat(who.how, " says rank ", who.rank, " of ", who.world);
}

// Reads the launchers named, or the one that PRUN_LAUNCHER selects.
std::vector<Identity> read_all(const Environment& environment) {
  struct Reader {
    const char* how;
    std::optional<Identity> (*read)(const Environment&);
  };
  constexpr Reader readers[] = {{"prun", from_prun},
                                {"torchrun", from_torchrun},
                                {"srun", from_srun},
                                {"mpirun", from_mpirun},
                                {"kubernetes", from_kubernetes}};
  const std::optional<std::string> wanted = environment("PRUN_LAUNCHER");
  std::vector<Identity> found;
  bool known = !wanted;
  for (const Reader& reader : readers) {
    if (wanted && *wanted != reader.how) continue;
    known = true;
    if (const auto who = reader.read(environment)) found.push_back(*who);
  }
  if (!known)
    throw_error(ErrorCode::bad_input, "environment variable PRUN_LAUNCHER: ", in_quotes(*wanted),
                " is none of prun, torchrun, srun, mpirun and kubernetes");
  if (wanted && found.empty())
    throw_error(ErrorCode::bad_input, "PRUN_LAUNCHER says ", *wanted,
                ", but the variables that it gives its ranks are not set");
  return found;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (!value) return {};
    return value;
  };
}

std::string rank_title(int rank, int world) { return detail::concat("prun ", rank, '/', world); }

std::optional<Identity> identity_from_environment(const Environment& environment) {
  const std::vector<Identity> found = read_all(environment);
  if (found.empty()) return {};
  Identity who = found.front();
  for (const Identity& other : found)
    if (other.rank != who.rank || other.world != who.world)
      throw_error(ErrorCode::bad_input, "two launchers disagree: ", said(who), ", ", said(other),
                  "; set PRUN_LAUNCHER to the one that holds");
  if (who.how == "prun" || who.world == 1) return who;
  who.master_host = master_host(environment, who);
  who.master_port = master_port(environment, who);
  return who;
}

}  // namespace prun
