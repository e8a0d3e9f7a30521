// Lists what outlives a step (parameters, master copies, optimizer state) as full tensors, whose names and
// shapes do not depend on the layout, and which elements of them a rank holds. Checkpoints are written and
// read by it. Example: with ZeRO-1 over two ranks, rank 1 holds elements [2048, 4096) of
// `block.3.qkv.weight.m` at element 512 of its shard.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/slice.hpp"
#include "plan/plan.hpp"

namespace prun {

// Suffix of the tensors of a parameter that a state replaces (Value::stand_in): the state has the parameter's
// name.
inline constexpr const char* trained_suffix = ".trained";

// Returns the axes, as one, along which ranks have different values (Value::is_apart). A checkpoint has a row
// for each coordinate.
AxisId axes_apart(const Value& value);

// Returns a rank's part of a value. Ranks with different values have the same box.
Slice slice_of(const Program& program, Id value, std::int64_t rank);

// Elements [first, first + count) of a rank's part of a parameter are elements [at, at + count) of its shard
// of the bucket. `count` may be 0.
struct BucketCut {
  std::int64_t first = 0, at = 0, count = 0;
};
BucketCut cut_of(const Program& program, const Bucket& bucket, Id parameter, std::int64_t rank);

// Elements of a tensor that are contiguous in a value, from element `at` on.
struct HeldSlice : TensorSlice {
  Id value = none;
  std::int32_t instance = 0;
  std::int64_t at = 0;
  // For low halves of master copies: the value with the upper halves, from the same element on. The tensor
  // has fp32.
  Id rounded = none;
  bool copy = false;    // another stage holds it as well (tied)
  bool moment = false;  // optimizer state
  Id parameter = none;  // it belongs to; none if there is none
};

// Returns all that a rank with these instances holds, except values of a base model (Value::in_base).
std::vector<HeldSlice> held_slices(const Program& program, const std::vector<Instance>& instances,
                                   std::int64_t rank);

// The part that a rank saves. Together, ranks save each element once; ranks that hold the same share the
// work.
using InstancesOf = std::function<const std::vector<Instance>&(std::int64_t rank)>;
std::vector<HeldSlice> saved_slices(const Program& program, const InstancesOf& instances_of,
                                    std::int64_t rank);

struct PersistentTensor {
  std::string name;
  DType type = DType::f32;
  Extents shape;
  bool moment = false;
  // The parameter's tensor, and the strategy that added it (Value::added_by); empty if there is none.
  std::string of_parameter, added_by;
  std::string starts_anew = {};            // recipe key, Value::starts_anew
  std::optional<OnResize> on_resize = {};  // for a state that differs between ranks
};
// Returns the tensors of the model, or of a stage, each once.
std::vector<PersistentTensor> persistent_tensors(const Program& program,
                                                 const std::vector<Instance>& instances);

// Counts what they take in a checkpoint.
std::int64_t persistent_bytes(const Program& program, const std::vector<Instance>& instances);

}  // namespace prun
