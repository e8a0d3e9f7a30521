// Holds the placement of every value on one axis of the mesh, at the point of the step that the pass has
// reached.
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
  // Returns the dimensions to shard on this axis in the order of requests; those of ops alone come last.
  const std::vector<Split>& splits() const { return splits_; }

  AxisPlacement now(Id id) const {
    const auto found = now_.find(id);
    return found == now_.end() ? program_.value(id).on(axis_) : found->second;
  }
  // Says whether the value is sharded in a way that only ops that want another dimension whole use.
  bool is_away(Id id) const;
  // Says whether the op finds a value that varies: its results vary too, unless they are sharded or partial.
  bool reads_varying(const Op& op) const;
  // Changes the placement from here on; memory stays laid out as it was.
  void change(Id id, const AxisPlacement& placement) { now_[id] = placement; }
  // Records the placement for good: memory is laid out by it.
  void settle(Id id, const AxisPlacement& placement);
  // Throws an Error unless the axis splits that dimension of the value into equal parts.
  void check_divides(const Value& value, const Name& name) const;
  // Throws an Error that says so if the op wants its dimensions whole because its operands come in blocks of
  // 8 bits.
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
