// The ranks as a grid of named axes, and how one value lies on one axis of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "prun/types.hpp"

namespace prun {

struct Axis {
  std::string name;
  std::int64_t extent = 1;
};

// Ranks are numbered row by row: the last axis varies fastest.
class Mesh {
 public:
  Mesh() = default;
  explicit Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {}

  const std::vector<Axis>& axes() const { return axes_; }
  std::size_t size() const { return axes_.size(); }
  std::int64_t extent(std::size_t axis) const { return axes_[axis].extent; }
  std::int64_t world() const;
  // All ranks, in order.
  std::vector<int> ranks() const;
  // The axis of that name, or -1.
  std::int32_t find(std::string_view name) const;
  // Where a rank stands along an axis.
  std::int64_t coordinate(std::int64_t rank, std::size_t axis) const;
  // The ranks that differ from this one along the axis alone, itself included, in order.
  std::vector<int> group(std::int64_t rank, std::size_t axis) const;

 private:
  std::int64_t stride(std::size_t axis) const;

  std::vector<Axis> axes_;
};

// A value on one axis.
struct AxisPlacement {
  enum class Kind : std::uint8_t {
    replicated,  // the same everywhere
    sharded,     // each coordinate has its part of dimension `dim`
    partial,     // each coordinate has a summand
  };
  Kind kind = Kind::replicated;
  Name dim;

  static AxisPlacement replicated() { return {}; }
  static AxisPlacement sharded(const Name& dim) { return {Kind::sharded, dim}; }
  static AxisPlacement partial() { return {Kind::partial, {}}; }
  bool is_replicated() const { return kind == Kind::replicated; }
  bool is_partial() const { return kind == Kind::partial; }
  bool is_sharded() const { return kind == Kind::sharded; }
  friend bool operator==(const AxisPlacement&, const AxisPlacement&) = default;
};

std::string to_text(const AxisPlacement& placement);

// What a strategy asks for: dimension `dim` lies on an axis wherever an op allows it.
struct Split {
  Name dim;
  std::int32_t axis = 0;
  friend bool operator==(const Split&, const Split&) = default;
};

}  // namespace prun
