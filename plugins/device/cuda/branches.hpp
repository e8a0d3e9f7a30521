// Finds which works of a call may run beside the others: those that add to sums, as weight gradients do, for
// which nothing waits within the call. Small models leave most of a GPU idle otherwise.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "device_op.hpp"

namespace prun::cuda {

// Names bytes that a work reads or changes.
struct Touch {
  const std::byte *begin, *end;
  bool changes;
};
using Touches = std::vector<Touch>;

// Returns those of operands and, where asked for, workspaces.
Touches touches_of(Launches launches, bool workspaces);

// Says whether launches that follow each other may be one. What an earlier one has read, or its workspace, is
// free for a later one's results, and a kernel that does both would write there while it still reads.
// `row_by_row`: it reads a row before it writes it, so that results may lie exactly where an operand did.
bool may_be_one(Launches launches, bool row_by_row);

// Names ops, types and shapes.
std::string kind_of(Launches launches);

// Is a launch, or some that were merged: the op to name where it fails, and what to do.
struct NamedWork {
  std::string op;
  std::int64_t layer = 0;
  Work work;
  bool captures = true;  // may be part of a graph
  // What follows is of use while it is bound, and let go then.
  std::string kind = {};  // equal for works that take equally long
  Touches touches = {};
  // A work that may run beside others has these: what it touches with a workspace of its own, and how it is
  // bound to that.
  Touches own_touches = {};
  std::function<Work(void* workspace)> bind_to = {};
};

// States, by work, its line, and the last work of the other line that it has to wait for.
struct Branch {
  bool beside = false;
  int after = -1;
};
// Returns an empty list where none can run beside the others.
std::vector<Branch> branches_of(std::span<const NamedWork> works);

}  // namespace prun::cuda
