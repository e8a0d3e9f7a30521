// Lists what outlives a step, as whole tensors whose names and shapes are the same in every layout, and which
// elements of them a rank holds: parameters, master copies, optimizer state.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/slice.hpp"
#include "plan/plan.hpp"

namespace prun {

// Ends the names of the tensors of a parameter that a state stands for (Value::stand_in): that state has the
// parameter's name.
inline constexpr const char* trained_suffix = ".trained";

// Returns the axes, as one, along which ranks have a value apart (Value::is_apart): in a checkpoint it has a
// row for each of their coordinates.
AxisId axes_apart(const Value& value);

// Returns the box of a value that is a rank's part of it; ranks that have it apart have the same box.
Slice slice_of(const Program& program, Id value, std::int64_t rank);

// Elements [first, first + count) of the rank's part of a packed parameter are elements [at, at + count) of
// the rank's own part of the bucket. `count` may be 0.
struct BucketCut {
  std::int64_t first = 0, at = 0, count = 0;
};
BucketCut cut_of(const Program& program, const Bucket& bucket, Id parameter, std::int64_t rank);

// Names elements of a tensor that are contiguous in a value of the plan's memory, from element `at` on.
struct HeldSlice : TensorSlice {
  Id value = none;
  std::int32_t instance = 0;
  std::int64_t at = 0;
  // For the low halves of master copies this is the value whose bf16 they complete, from the same element on.
  // The tensor has whole floats.
  Id rounded = none;
  bool copy = false;    // whether another stage of the pipeline holds it as well, and updates it alike
  bool moment = false;  // whether an optimizer keeps it beside a parameter
  Id parameter = none;  // parameter that it belongs to, or none
};

// Returns everything that a rank with these instances holds, except for values that are not its own
// (Value::in_base).
std::vector<HeldSlice> held_slices(const Program& program, const std::vector<Instance>& instances,
                                   std::int64_t rank);

// Returns what a rank saves of that: over all ranks each element once; ranks that hold the same share the
// work.
using InstancesOf = std::function<const std::vector<Instance>&(std::int64_t rank)>;
std::vector<HeldSlice> saved_slices(const Program& program, const InstancesOf& instances_of,
                                    std::int64_t rank);

struct PersistentTensor {
  std::string name;
  DType type = DType::f32;
  Extents shape;
  bool moment = false;
  // These are the parameter's own tensor, and the strategy's section that added it (Value::added_by); they
  // are empty if there is none.
  std::string of_parameter, added_by;
  std::string starts_anew = {};            // key of the recipe, Value::starts_anew
  std::optional<OnResize> on_resize = {};  // for a state that ranks have apart
};
// Returns the tensors of a chain's instances, each once: of the whole model, or of a stage.
std::vector<PersistentTensor> persistent_tensors(const Program& program,
                                                 const std::vector<Instance>& instances);

// Returns the bytes that they take in a checkpoint.
std::int64_t persistent_bytes(const Program& program, const std::vector<Instance>& instances);

}  // namespace prun
