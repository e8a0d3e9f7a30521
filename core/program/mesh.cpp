#include "program/mesh.hpp"

#include <numeric>

namespace prun {

std::int64_t Mesh::world() const {
  std::int64_t ranks = 1;
  for (const Axis& axis : axes_) ranks *= axis.extent;
  return ranks;
}

std::vector<int> Mesh::ranks() const {
  std::vector<int> all(static_cast<std::size_t>(world()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

AxisId Mesh::find(std::string_view name) const {
  for (AxisId axis = 0; axis < axes_.size(); ++axis)
    if (axes_[axis].name == name) return axis;
  return no_axis;
}

std::int64_t Mesh::stride(AxisId axis) const {
  std::int64_t stride = 1;
  for (AxisId i = axis + 1; i < axes_.size(); ++i) stride *= axes_[i].extent;
  return stride;
}

std::int64_t Mesh::coordinate(std::int64_t rank, AxisId axis) const {
  return rank / stride(axis) % axes_[axis].extent;
}

std::vector<int> Mesh::group(std::int64_t rank, AxisId axis) const {
  const std::int64_t step = stride(axis), first = rank - coordinate(rank, axis) * step;
  std::vector<int> members;
  for (std::int64_t i = 0; i < axes_[axis].extent; ++i) members.push_back(static_cast<int>(first + i * step));
  return members;
}

std::string to_text(const AxisPlacement& placement) {
  switch (placement.kind) {
    case AxisPlacement::Kind::replicated: return "replicated";
    case AxisPlacement::Kind::sharded: return "sharded on '" + std::string(placement.dim.view()) + "'";
    case AxisPlacement::Kind::partial: return "a partial sum";
  }
  return "?";
}

}  // namespace prun
