// Finds which rank of which run this process is. Ranks may be started by prun itself, torchrun, Slurm's srun,
// Open MPI's mpirun or Kubernetes; each states it in variables of its own.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace prun {

// ------------------------------------------------------------------- identity

// Returns the value of a variable, or nothing when it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

struct Identity {
  int rank = 0;
  int world = 1;
  int local_rank = 0;  // number among the ranks of this host
  int local_world = 1;
  std::string how;  // launcher: "prun", "torchrun", "srun", "mpirun" or "kubernetes"

  // Rank 0 listens here. Ranks that prun started do not use it: they have a socket each.
  std::string master_host;
  int master_port = 0;

  bool one_host() const { return local_world == world; }
};

// Returns a title such as "prun 3/8": what ps, top and pgrep call a rank.
std::string rank_title(int rank, int world);

// Returns nothing when this process is no rank. Throws bad_input, naming the variables, for numbers that
// cannot be and when two launchers disagree about rank or world; PRUN_LAUNCHER=torchrun (or prun, srun,
// mpirun) says which holds. A Slurm allocation or a step of one task is no launch: prun may be called in it
// like in any shell.
//
// Host and port of rank 0 are PRUN_MASTER and PRUN_MASTER_PORT; else MASTER_ADDR and MASTER_PORT; else
// 127.0.0.1 when all ranks are on one host, or the first host of a Slurm step, and a port made from the job's
// name. torchrun's own store holds MASTER_PORT, so under torchrun MASTER_PORT + 17 is taken.
//
// A pod of a PyTorchJob knows its number among the pods, but no rank within: RANK and WORLD_SIZE, or
// PET_NODE_RANK and PET_NNODES where they are set as well, with MASTER_ADDR and without LOCAL_RANK. It is
// taken for one rank; where the recipe has more, each pod starts its share (launch()). One pod alone is no
// launch.
std::optional<Identity> identity_from_environment(const Environment& environment = process_environment());

// ------------------------------------------------------------------- slurm list
// Reads the compressed lists in Slurm's variables: hosts as "gpu[07-09,12]-ib,login" and tasks as "4(x2),3".

// Returns the first host of the list. Throws bad_input naming `variable`.
std::string first_slurm_host(std::string_view list, std::string_view variable);

// Returns how many tasks run on node number `node`. Throws bad_input naming `variable`.
int slurm_tasks_of_node(std::string_view list, int node, std::string_view variable);

}  // namespace prun
