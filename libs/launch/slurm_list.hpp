// Reads the compressed lists in Slurm's variables: hosts as "gpu[07-09,12]-ib,login" and tasks as "4(x2),3".
#pragma once

#include <string>
#include <string_view>

namespace prun {

// Returns the first host of the list. Throws bad_input naming `variable`.
std::string first_slurm_host(std::string_view list, std::string_view variable);

// Returns how many tasks run on node number `node`. Throws bad_input naming `variable`.
int slurm_tasks_of_node(std::string_view list, int node, std::string_view variable);

}  // namespace prun
