#include "branches.hpp"

#include <algorithm>

namespace prun::cuda {
namespace {

bool overlap(const Touch& a, const Touch& b) { return a.begin < b.end && b.begin < a.end; }

template <class Counts>
bool any_pair(const Touches& a, const Touches& b, Counts counts) {
  for (const Touch& one : a)
    for (const Touch& other : b)
      if (overlap(one, other) && counts(one, other)) return true;
  return false;
}

// Says whether the order of the two works matters.
bool meet(const Touches& a, const Touches& b) {
  return any_pair(a, b, [](const Touch& one, const Touch& other) { return one.changes || other.changes; });
}

// Says whether the later work needs what the earlier one has done.
bool feeds(const Touches& earlier, const Touches& later) {
  return any_pair(earlier, later, [](const Touch& one, const Touch&) { return one.changes; });
}

// Says whether results overlap others' operands or results, unless they lie exactly in the place of an
// operand where that does not matter.
bool writes_over(const Touches& results, const Touches& others, bool row_by_row) {
  return any_pair(results, others, [&](const Touch& result, const Touch& other) {
    const bool in_place =
        row_by_row && !other.changes && result.begin == other.begin && result.end == other.end;
    return result.changes && !in_place;
  });
}

Touches workspace_of(const KernelArgs& args) {
  const auto* const begin = static_cast<const std::byte*>(args.workspace);
  return begin ? Touches{{begin, begin + args.workspace_bytes, true}} : Touches{};
}

const Touches& touches_in(const NamedWork& work, const Branch& branch) {
  return branch.beside ? work.own_touches : work.touches;
}

bool may_run_beside(std::span<const NamedWork> works, const std::vector<Branch>& branches, std::size_t i) {
  if (!works[i].bind_to) return false;
  for (std::size_t later = i + 1; later < works.size(); ++later)
    if (!branches[later].beside && feeds(works[i].own_touches, works[later].touches)) return false;
  return true;
}

}  // namespace

Touches touches_of(Launches launches, bool workspaces) {
  Touches touches;
  const auto add = [&](const void* data, std::int64_t bytes, bool changes, DType dtype) {
    const auto* begin = static_cast<const std::byte*>(data);
    const bool whole_numbers = dtype == DType::i32 || dtype == DType::i64;
    if (data && bytes > 0) touches.push_back({begin, begin + bytes, changes, whole_numbers});
  };
  for (const Launch& launch : launches) {
    const KernelArgs& args = launch.args;
    for (int i = 0; i < args.operand_count; ++i)
      add(args.operands[i].data, args.operands[i].elements() * size_of(args.operands[i].dtype),
          args.changed(i), args.operands[i].dtype);
    if (workspaces) add(args.workspace, args.workspace_bytes, true, DType::u8);
  }
  return touches;
}

bool may_be_one(Launches launches, bool row_by_row) {
  for (std::size_t later = 1; later < launches.size(); ++later)
    for (std::size_t earlier = 0; earlier < later; ++earlier) {
      const Launches one = launches.subspan(earlier, 1), other = launches.subspan(later, 1);
      if (writes_over(touches_of(other, false), touches_of(one, false), row_by_row) ||
          writes_over(touches_of(other, false), workspace_of(launches[earlier].args), false) ||
          writes_over(workspace_of(launches[later].args), touches_of(one, false), false))
        return false;
    }
  return true;
}

bool may_run_last(Launches launches) {
  return !meet(touches_of(launches.first(1), false), touches_of(launches.subspan(1), true));
}

std::string kind_of(Launches launches) {
  std::string kind;
  for (const Launch& launch : launches) {
    kind += launch.op.view();
    kind += ' ' + std::to_string(launch.args.first);
    for (int i = 0; i < launch.args.operand_count; ++i) {
      const Tensor& tensor = launch.args.operands[i];
      kind += ' ' + std::string(tensor.data ? name_of(tensor.dtype) : "-");
      for (int d = 0; d < tensor.rank; ++d) kind += ',' + std::to_string(tensor.dim[d]);
    }
    kind += '\n';
  }
  return kind;
}

std::vector<Branch> branches_of(std::span<const NamedWork> works) {
  std::vector<Branch> branches(works.size());
  bool some = false;
  for (std::size_t i = works.size(); i-- > 0;) {
    branches[i].beside = may_run_beside(works, branches, i);
    some |= branches[i].beside;
  }
  if (!some) return {};
  for (std::size_t i = 0; i < works.size(); ++i)
    for (std::size_t earlier = 0; earlier < i; ++earlier)
      if (branches[earlier].beside != branches[i].beside &&
          meet(touches_in(works[earlier], branches[earlier]), touches_in(works[i], branches[i])))
        branches[i].after = static_cast<int>(earlier);
  return branches;
}

}  // namespace prun::cuda
