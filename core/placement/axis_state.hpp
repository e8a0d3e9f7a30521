// Tracks the placement of every value on one axis of the mesh while a pass walks through a step. Example:
// with `dp = 2`, the gradient of a weight becomes partial in `backward` and replicated after the all-reduce
// in `reduce`. settle() records the placement that memory is laid out by; change() records the later one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "program/step_program.hpp"

namespace prun {

bool lists(const Name (&names)[max_marks], const Name& name);
bool has_dim(const Value& value, const Name& name);

class AxisState {
 public:
  AxisState(Program& program, AxisId axis);

  Program& program() const { return program_; }
  AxisId axis() const { return axis_; }
  std::string name() const { return program_.mesh().name(axis_); }
  std::int64_t extent() const { return program_.mesh().extent(axis_); }
  // Splits requested for ops only come last.
  const std::vector<Split>& splits() const { return splits_; }

  AxisPlacement now(Id id) const {
    const auto found = now_.find(id);
    return found == now_.end() ? program_.value(id).on(axis_) : found->second;
  }
  // Returns true if the value is sharded along a dimension that was requested for ops only (SplitScope::ops).
  bool is_away(Id id) const;
  // Returns true if an operand varies; the results then vary too, unless they are sharded or partial.
  bool reads_varying(const Op& op) const;
  // Changes the placement from here on; the memory layout stays.
  void change(Id id, const AxisPlacement& placement) { now_[id] = placement; }
  // Fixes the placement; memory is laid out by it.
  void settle(Id id, const AxisPlacement& placement);
  // Throws an Error unless the axis splits that dimension of the value into equal parts.
  void check_divides(const Value& value, const Name& name) const;
  // Throws an Error if an operand has 8-bit blocks: the op then needs its dimensions unsharded.
  void refuse_split_blocks(const Op& op) const;

  template <class... Parts>
  [[noreturn]] void refuse(const Op& op, const Parts&... parts) const {
    throw_error(ErrorCode::unsupported, "axis '", name(), "': segment '", program_.segment(op.segment).name,
                "', op '", op.kind(), "': ", detail::concat(parts...));
  }

 private:
  [[noreturn]] void refuse_parts(const Value& value, const Dim& dim, std::int64_t parts,
                                 const std::string& axes) const;
  [[noreturn]] void refuse_blocks(const Value& scales) const;
  std::string in_recipe(AxisId axis) const;

  Program& program_;
  AxisId axis_;
  std::vector<Split> splits_;
  std::map<Id, AxisPlacement> now_;
};

}  // namespace prun
