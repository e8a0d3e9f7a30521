// The ranks as a grid of named axes, and how one value lies on one axis of it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "prun/program.hpp"

namespace prun {

// An axis of the mesh by its place in it: what everything but an op's attributes knows it by.
using AxisId = std::size_t;
inline constexpr AxisId no_axis = std::numeric_limits<AxisId>::max();

// Several axes as one, whose ranks are those that differ along any of them, row by row. Exchanges and parts
// know it; how a value lies is said of each axis. Of a single axis it is that axis; of none, that of a rank
// alone.
AxisId folded(const std::vector<AxisId>& axes);
// The axes that it is made of, in the order of the mesh.
std::vector<AxisId> axes_of(AxisId axis);

struct Axis {
  std::string name;  // as the recipe has it; behind a point, which part of it
  std::int64_t extent = 1;
};

// Ranks are numbered row by row: the last axis varies fastest.
class Mesh {
 public:
  Mesh() = default;
  explicit Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {}

  const std::vector<Axis>& axes() const { return axes_; }
  std::size_t size() const { return axes_.size(); }
  // Of a folded one: "dp+cp".
  std::string name(AxisId axis) const;
  std::int64_t extent(AxisId axis) const;
  std::int64_t world() const;
  // Whether the mesh has the axis or, of a folded one, all that it is made of.
  bool has(AxisId axis) const;
  // All ranks, in order.
  std::vector<int> ranks() const;
  // The axis of that name, or no_axis.
  AxisId find(std::string_view name) const;
  // What the recipe has as one axis of that name: it, or those that it is made of (factored).
  std::vector<AxisId> all_of(std::string_view name) const;
  // It returns a mesh of the same ranks that has an axis of the recipe's as two: one of `parts` ranks and one
  // of what is left of its extent, which is called "tp.queries" and comes behind it, or in front.
  Mesh factored(std::string_view name, std::int64_t parts, std::string_view rest, bool in_front) const;
  // Where a rank stands along an axis.
  std::int64_t coordinate(std::int64_t rank, AxisId axis) const;
  // The ranks that differ from this one along the axis alone, itself included, in order.
  std::vector<int> group(std::int64_t rank, AxisId axis) const;

 private:
  std::int64_t stride(AxisId axis) const;

  std::vector<Axis> axes_;
};

// A value on one axis.
struct AxisPlacement {
  enum class Kind : std::uint8_t {
    replicated,  // the same everywhere
    sharded,     // each coordinate has its part of dimension `dim`
    partial,     // each coordinate has a summand
    maximum,     // each coordinate has what it found largest: as good as the same everywhere where it is
  };
  Kind kind = Kind::replicated;
  Name dim;

  static AxisPlacement replicated() { return {}; }
  static AxisPlacement sharded(const Name& dim) { return {Kind::sharded, dim}; }
  static AxisPlacement partial() { return {Kind::partial, {}}; }
  static AxisPlacement maximum() { return {Kind::maximum, {}}; }
  bool is_replicated() const { return kind == Kind::replicated; }
  bool is_partial() const { return kind == Kind::partial; }
  bool is_maximum() const { return kind == Kind::maximum; }
  // Whether the ranks' must be put together before it is what it is.
  bool is_incomplete() const { return is_partial() || is_maximum(); }
  bool is_sharded() const { return kind == Kind::sharded; }
  friend bool operator==(const AxisPlacement&, const AxisPlacement&) = default;
};

std::string to_text(const AxisPlacement& placement);

// What a strategy asks for: dimension `dim` lies on an axis wherever an op allows it.
struct Split {
  Name dim;
  AxisId axis = 0;
  SplitScope scope = SplitScope::everywhere;
};

}  // namespace prun
