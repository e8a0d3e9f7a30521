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

std::int32_t Mesh::find(std::string_view name) const {
  for (std::size_t i = 0; i < axes_.size(); ++i)
    if (axes_[i].name == name) return static_cast<std::int32_t>(i);
  return -1;
}

std::int64_t Mesh::stride(std::size_t axis) const {
  std::int64_t stride = 1;
  for (std::size_t i = axis + 1; i < axes_.size(); ++i) stride *= axes_[i].extent;
  return stride;
}

std::int64_t Mesh::coordinate(std::int64_t rank, std::size_t axis) const {
  return rank / stride(axis) % axes_[axis].extent;
}

std::vector<int> Mesh::group(std::int64_t rank, std::size_t axis) const {
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
