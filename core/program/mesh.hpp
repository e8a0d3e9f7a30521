// Describes the ranks as a grid of named axes, and the placement of a value on one axis of it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "prun/program.hpp"

namespace prun {

// Names an axis of the mesh by its place in it; everything but an op's attributes uses this.
using AxisId = std::size_t;
inline constexpr AxisId no_axis = std::numeric_limits<AxisId>::max();

// Returns several axes as one, whose ranks are those that differ along any of them, row by row. Exchanges and
// parts know it; a value's placement is stated for each axis. A single axis gives itself; no axis gives that
// of a rank alone.
AxisId folded(const std::vector<AxisId>& axes);
// Returns the axes that this one is made of, in the order of the mesh.
std::vector<AxisId> axes_of(AxisId axis);

struct Axis {
  std::string name;  // name in the recipe; behind a point, which part of it
  std::int64_t extent = 1;
};

// Ranks are numbered row by row: the last axis varies fastest.
class Mesh {
 public:
  Mesh() = default;
  explicit Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {}

  const std::vector<Axis>& axes() const { return axes_; }
  std::size_t size() const { return axes_.size(); }
  // Returns the axis's name; a folded axis has one such as "dp+cp".
  std::string name(AxisId axis) const;
  std::int64_t extent(AxisId axis) const;
  std::int64_t world() const;
  // Says whether the mesh has the axis or, for a folded one, all axes that it is made of.
  bool has(AxisId axis) const;
  // Returns all ranks, in order.
  std::vector<int> ranks() const;
  // Returns the axis of that name, or no_axis.
  AxisId find(std::string_view name) const;
  // Returns what the recipe has as one axis of that name: the axis, or those that it is made of (factored).
  std::vector<AxisId> all_of(std::string_view name) const;
  // Returns a mesh of the same ranks that has an axis of the recipe's as two: one of `parts` ranks and one
  // with the rest of its extent, which is called "tp.queries" and comes behind it, or in front.
  Mesh factored(std::string_view name, std::int64_t parts, std::string_view rest, bool in_front) const;
  // Returns a rank's coordinate along an axis.
  std::int64_t coordinate(std::int64_t rank, AxisId axis) const;
  // Returns the ranks that differ from this one along the axis alone, itself included, in order.
  std::vector<int> group(std::int64_t rank, AxisId axis) const;

 private:
  std::int64_t stride(AxisId axis) const;

  std::vector<Axis> axes_;
};

// States the placement of a value on one axis.
struct AxisPlacement {
  using Kind = PlacementKind;
  Kind kind = Kind::replicated;
  Name dim;

  static AxisPlacement replicated() { return {}; }
  static AxisPlacement sharded(const Name& dim) { return {Kind::sharded, dim}; }
  static AxisPlacement partial() { return {Kind::partial, {}}; }
  static AxisPlacement maximum() { return {Kind::maximum, {}}; }
  static AxisPlacement varying() { return {Kind::varying, {}}; }
  bool is_replicated() const { return kind == Kind::replicated; }
  bool is_partial() const { return kind == Kind::partial; }
  bool is_maximum() const { return kind == Kind::maximum; }
  // Says whether the ranks' values must be combined before the value is complete.
  bool is_incomplete() const { return is_partial() || is_maximum(); }
  bool is_sharded() const { return kind == Kind::sharded; }
  bool is_varying() const { return kind == Kind::varying; }
  friend bool operator==(const AxisPlacement&, const AxisPlacement&) = default;
};

std::string to_text(const AxisPlacement& placement);

// Turns the placement of a partial sum into that of the whole sum, on all axes.
void complete_sums(std::vector<AxisPlacement>& placement);

// States a strategy's request: dimension `dim` is sharded on an axis wherever an op allows it.
struct Split {
  Name dim;
  AxisId axis = 0;
  SplitScope scope = SplitScope::everywhere;
};

}  // namespace prun
