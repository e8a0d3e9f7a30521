// Decides for sums and maxima over the ranks of an axis what each op adds to, and where the total is reduced.
//
// Replicated and partial contributions must not enter one sum, since the all-reduce would count the
// replicated one once per rank. The replicated ones go to a second accumulator, the twin, which is added
// after the all-reduce. Example: on axis `tp`, the squared norm of a gain is the same on every rank, that of
// a sharded weight differs. The first goes to `norm@tp`, the second to `norm`; `finish` all-reduces `norm`
// and adds `norm@tp`.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "program/step_program.hpp"

namespace prun {

// ------------------------------------------------------------------- axis state
// Tracks the placement of every value on one axis of the mesh while a pass walks through a step. Example:
// with `dp = 2`, the gradient of a weight becomes partial in `backward` and replicated after the all-reduce
// in `reduce`. settle() records the placement that memory is laid out by; change() records the later one.

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

// ------------------------------------------------------------------- axis sums

class AxisSums {
 public:
  explicit AxisSums(AxisState& axis) : axis_(axis), program_(axis.program()) {}

  bool has_twin(Id id) const { return twins_.count(id) != 0; }
  // Call it for each op, once it is placed.
  void note_placed(Id op) { placed_.push_back(op); }
  // Marks a value that an existing collective sums in place: no rank may add to its copy afterwards.
  void note_summed(Id id) { summed_.insert(id); }
  // Records that op writes or accumulates operand i with that placement. `folds`: the op takes the maximum of
  // old and new value.
  void produce(const Op& op, Id op_id, std::size_t i, const AxisPlacement& placement, bool folds);
  // Reduces a value in place before op `before` reads it.
  void sum_in_place(Id id, const Op& op, Id before);
  // Sums the twin over another axis, if it is partial there like the value.
  void sum_twin_alike(const Op& op, Id id);

 private:
  void accumulate(const Op& op, Id op_id, std::size_t i, const AxisPlacement& placement);
  bool reads_varying_tensors(const Op& op) const;
  void check_joins(const Op& op, std::size_t i, const AxisPlacement& placement) const;
  void fold(const Op& op, std::size_t i, const AxisPlacement& placement, bool folds);
  Id twin_of(Id id);
  void redirect(Id id, Id twin);

  AxisState& axis_;
  Program& program_;
  std::set<Id> cleared_;
  std::set<Id> summed_;     // reduced in place: no rank may add to its copy
  std::map<Id, Id> twins_;  // accumulators of replicated contributions, by the partial sum
  std::vector<Id> placed_;  // in order
};

// ------------------------------------------------------------------- op choice
// Decides how an op runs on one axis: along which dimension it is split, or whether it passes partial sums or
// maxima on. Example: `linear` with a weight sharded along `ffn` is split along `ffn`. Going up it sums over
// `hidden`, so its result is sharded along `ffn`; going down it sums over `ffn`, so its result is a partial
// sum, which a cast passes on.

// Returns true if operand i may stay incomplete because the op's result can be reduced instead.
bool passes(const OpShape& shape, const AxisPlacement& incomplete, std::size_t i);

class OpChoice {
 public:
  OpChoice(const AxisState& axis, const AxisSums& sums)
      : axis_(axis), program_(axis.program()), sums_(sums) {}

  // Dimensions that the op prefers come before the order of requests.
  std::optional<Name> split(const Op& op, const OpShape& shape) const;
  // Returns partial or maximum if the op passes them on, otherwise replicated.
  AxisPlacement passed_on(const Op& op, const OpShape& shape) const;
  // Returns the placement of results without the split dimension.
  AxisPlacement left_by(const Op& op, const OpShape& shape, const Name& split) const;

 private:
  bool is_asked(const Name& dim) const;
  bool has(Id id, const Name& dim) const { return has_dim(program_.value(id), dim); }
  bool has_whole_state(const Op& op, const Name& dim) const;
  bool can_be_had(const Op& op, const OpShape& shape, const Split& split) const;
  bool passes_on(const Op& op, const OpShape& shape, const AxisPlacement& one) const;

  const AxisState& axis_;
  const Program& program_;
  const AxisSums& sums_;
};

}  // namespace prun
