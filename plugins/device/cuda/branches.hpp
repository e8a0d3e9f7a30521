// Finds which works of a call may run beside the others: those that add to sums, as weight gradients do, for
// which nothing waits within the call. Small models would leave most of a GPU idle otherwise.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "device_op.hpp"

namespace prun::cuda {

// Names bytes that a work reads or changes; kernels may take whole numbers among them for places in memory.
struct Touch {
  const std::byte *begin, *end;
  bool changes;
  bool whole_numbers = false;
};
using Touches = std::vector<Touch>;

// Returns what the launches touch: their operands and, with `workspaces`, their workspaces.
Touches touches_of(Launches launches, bool workspaces);

// Says whether launches that follow each other may be one. What an earlier one has read, or its workspace, is
// free for a later one's results, and a kernel that does both would write there while it still reads.
// `row_by_row` says that it reads a row before it writes it, so that results may lie exactly where an operand
// did.
bool may_be_one(Launches launches, bool row_by_row);

// Says whether the first of these launches may run behind the others, if it needs no workspace.
bool may_run_last(Launches launches);

// Returns a text that names ops, types and shapes.
std::string kind_of(Launches launches);

// Is the work of a launch, or of some that were merged: it names the op, for errors.
struct NamedWork {
  std::string op;
  std::int64_t layer = 0;
  Work work;
  bool captures = true;  // says that it may be part of a graph
  // The members below are used while the work is bound, and cleared then.
  std::string kind = {};  // is equal for works that take equally long
  Touches touches = {};
  // A work that may run beside others has these: what it touches with a workspace of its own, and a function
  // that binds it to that.
  Touches own_touches = {};
  std::function<Work(void* workspace)> bind_to = {};
};

// States, for a work, its line, and the last work of the other line that it has to wait for.
struct Branch {
  bool beside = false;
  int after = -1;
};
// Returns an empty list where no work can run beside the others.
std::vector<Branch> branches_of(std::span<const NamedWork> works);

}  // namespace prun::cuda
