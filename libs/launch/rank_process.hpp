// Starts one rank: a process that dies with its launcher, leads a process group, and has inherited its end of
// the rendezvous and its flight record.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/durable_file.hpp"

namespace prun {

struct RankStart {
  std::string program;
  std::vector<std::string> arguments;    // arguments, with the name as the first
  std::vector<std::string> environment;  // whole environment, as NAME=value
  std::vector<int> inherited;            // descriptors above 2 to keep open
  std::optional<cpu_set_t> cores;
  sigset_t signal_mask;
};

struct RankProcess {
  pid_t pid = -1;
  FileDescriptor pidfd;  // readable once the process has ended
};

// Returns when the program runs; throws bad_input when it cannot be run. The calling thread must live as long
// as the rank: the system ties the rank's life to it.
RankProcess start_rank(const RankStart& start);

// Returns 'T' for stopped, 'Z' for ended but not reaped, as /proc says; 0 if there is no such process.
char process_state(pid_t pid);

}  // namespace prun
