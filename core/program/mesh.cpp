#include "program/mesh.hpp"

#include <algorithm>
#include <numeric>

namespace prun {
namespace {

// Folded axes are a set of bits under a bit that no axis of a mesh has as its number. An op's attribute,
// which is passed as a double, holds it.
constexpr AxisId fold_mark = AxisId{1} << 32;
constexpr AxisId most_folded = 32;

bool is_folded(AxisId axis) { return axis != no_axis && (axis & fold_mark) != 0; }

}  // namespace

AxisId folded(const std::vector<AxisId>& axes) {
  if (axes.size() == 1) return axes.front();
  AxisId all = fold_mark;
  for (const AxisId axis : axes) {
    PRUN_CHECK(axis < most_folded, "axis ", axis, " cannot be folded");
    all |= AxisId{1} << axis;
  }
  return all;
}

std::vector<AxisId> axes_of(AxisId axis) {
  if (!is_folded(axis)) return {axis};
  std::vector<AxisId> axes;
  for (AxisId one = 0; one < most_folded; ++one)
    if ((axis >> one & 1u) != 0) axes.push_back(one);
  return axes;
}

bool Mesh::has(AxisId axis) const {
  if (axis == no_axis) return false;
  const std::vector<AxisId> axes = axes_of(axis);
  return std::all_of(axes.begin(), axes.end(), [&](AxisId one) { return one < axes_.size(); });
}

std::string Mesh::name(AxisId axis) const {
  if (!is_folded(axis)) return axes_[axis].name;
  std::string text;
  for (const AxisId one : axes_of(axis)) text += (text.empty() ? "" : "+") + axes_[one].name;
  return text;
}

std::int64_t Mesh::extent(AxisId axis) const {
  if (!is_folded(axis)) return axes_[axis].extent;
  std::int64_t ranks = 1;
  for (const AxisId one : axes_of(axis)) ranks *= axes_[one].extent;
  return ranks;
}

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

std::vector<AxisId> Mesh::all_of(std::string_view name) const {
  std::vector<AxisId> all;
  for (AxisId axis = 0; axis < axes_.size(); ++axis)
    if (std::string_view(axes_[axis].name).substr(0, axes_[axis].name.find('.')) == name) all.push_back(axis);
  return all;
}

Mesh Mesh::factored(std::string_view name, std::int64_t parts, std::string_view rest, bool in_front) const {
  std::vector<Axis> axes = axes_;
  const AxisId axis = find(name);
  PRUN_CHECK(axis != no_axis && axes[axis].extent % parts == 0, "axis '", name, "' has no ", parts, " parts");
  const Axis other{detail::concat(name, '.', rest), axes[axis].extent / parts};
  axes[axis].extent = parts;
  axes.insert(axes.begin() + static_cast<std::ptrdiff_t>(axis) + (in_front ? 0 : 1), other);
  return Mesh(std::move(axes));
}

std::int64_t Mesh::stride(AxisId axis) const {
  std::int64_t stride = 1;
  for (AxisId i = axis + 1; i < axes_.size(); ++i) stride *= axes_[i].extent;
  return stride;
}

std::int64_t Mesh::coordinate(std::int64_t rank, AxisId axis) const {
  if (!is_folded(axis)) return rank / stride(axis) % axes_[axis].extent;
  std::int64_t at = 0;
  for (const AxisId one : axes_of(axis)) at = at * axes_[one].extent + coordinate(rank, one);
  return at;
}

std::vector<int> Mesh::group(std::int64_t rank, AxisId axis) const {
  std::vector<int> members = {static_cast<int>(rank)};
  for (const AxisId one : axes_of(axis)) {
    const std::vector<int> before = std::move(members);
    members.clear();
    for (const int member : before) {
      const std::int64_t first = member - coordinate(member, one) * stride(one);
      for (std::int64_t i = 0; i < axes_[one].extent; ++i)
        members.push_back(static_cast<int>(first + i * stride(one)));
    }
  }
  return members;
}

std::string to_text(const AxisPlacement& placement) {
  switch (placement.kind) {
    case AxisPlacement::Kind::replicated: return "replicated";
    case AxisPlacement::Kind::sharded: return "sharded on '" + std::string(placement.dim.view()) + "'";
    case AxisPlacement::Kind::partial: return "a partial sum";
    case AxisPlacement::Kind::maximum: return "a partial maximum";
    case AxisPlacement::Kind::varying: return "each rank's own";
  }
  return "?";
}

void complete_sums(std::vector<AxisPlacement>& placement) {
  for (AxisPlacement& lies : placement)
    if (lies.is_partial()) lies = AxisPlacement::replicated();
}

}  // namespace prun
