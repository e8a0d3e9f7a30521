// Describes the machine: what figures were taken on, which cores each rank of a host gets, and the limits of
// a process.
#pragma once

#include <sched.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace prun {

// ------------------------------------------------------------------- machine

struct Machine {
  std::string cpu;         // name that the system gives
  std::int64_t cores = 0;  // cores that this process may use
  std::string isa;         // best instruction set: "avx512", "avx2", "generic"

  friend bool operator==(const Machine&, const Machine&) = default;
};

Machine this_machine();

// Returns a text such as "Intel(R) Xeon(R), 2 cores, avx512".
std::string to_text(const Machine& machine);

// ------------------------------------------------------------------- core shares
// Lets the ranks of a host share its cores.

// Returns how usable cores are dealt out: contiguous shares, or nothing if there are fewer cores than ranks,
// so that all use all of them.
std::vector<std::optional<cpu_set_t>> share_cores(const cpu_set_t& usable, int ranks);

// Gives the calling thread, and what it starts, the cores of one of so many ranks while this lives: a device
// that is made meanwhile finds what that rank's will find.
class CoresOfRank {
 public:
  CoresOfRank(int rank, int ranks);
  ~CoresOfRank();
  CoresOfRank(const CoresOfRank&) = delete;
  CoresOfRank& operator=(const CoresOfRank&) = delete;

  // Says whether cores were dealt; if there are fewer cores than ranks, or one rank, the thread has all of
  // them.
  bool dealt() const { return before_.has_value(); }

 private:
  std::optional<cpu_set_t> before_;
};

// Keeps this process, and the threads that it starts from now on, to one rank's share, if the launcher leaves
// all cores of the machine to each rank. It does nothing if cores were dealt out already.
void keep_to_share(int local_rank, int local_ranks);

// ------------------------------------------------------------------- process limits
// Checks what the system allows this process, before anything else runs in it.

// Every thread needs so much: several times what was seen to be enough for prun, its plugins and their
// libraries.
inline constexpr std::int64_t least_stack_bytes = 1 << 20;

// Returns the stack of a thread that is started without stating one.
std::int64_t stack_of_threads();

// Raises the soft limit on stacks to the least if the hard one allows it, for the main thread, later ones and
// the processes that this one starts; otherwise throws unsupported. Where address space is limited, all
// threads share one heap: each one's own would take 64 MiB of addresses or, once they are few, none, so the
// need of a run would be unknown. Blocks of a mebibyte and more go back to the system as they are freed.
void meet_process_limits();

// Gives unused parts of the heap back to the system: between what planning keeps lies as much that it has
// freed.
void give_back_free_memory();

}  // namespace prun
