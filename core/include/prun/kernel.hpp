// SPDX-License-Identifier: Apache-2.0
// The kernel ABI: what a kernel is given when it runs, and how a device or an op plugin offers one.
#pragma once

#include "prun/types.hpp"
#include "prun/workers.hpp"

namespace prun {

// Describes one operand at run time: a dense row-major local shard and its place in the whole tensor. `start`
// is the global index of the shard's first element along each dimension: positions, vocabulary shards and
// randomness are keyed by it, so that no kernel needs to know about ranks.
struct Tensor {
  void* data = nullptr;  // null if an optional operand is absent
  DType dtype = DType::f32;
  std::int32_t rank = 0;
  std::int64_t dim[max_dims] = {};
  std::int64_t start[max_dims] = {};

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dim[i];
    return n;
  }
  // Return the product of the last `n` dimensions, and of those before them.
  std::int64_t inner(int n) const {
    std::int64_t product = 1;
    for (int i = rank - n; i < rank; ++i) product *= dim[i];
    return product;
  }
  std::int64_t outer(int n) const {
    std::int64_t product = 1;
    for (int i = 0; i < rank - n; ++i) product *= dim[i];
    return product;
  }
};

// Describes neighbouring elements of an operand that belong to one tensor of the model, and their indices in
// that whole tensor: randomness is keyed by these indices, however the tensor is split or packed.
struct TensorElements {
  std::uint64_t name = 0;             // hash of the tensor's name and layer
  std::int64_t begin = 0, count = 0;  // range of the operand's elements
  // The indices are consecutive within runs, each of which begins `stride` after the one before.
  std::int64_t base = 0;  // where the first run begins
  std::int64_t run = 0, stride = 0;
  std::int64_t skipped = 0;  // elements of the runs before the first one listed

  constexpr std::int64_t number(std::int64_t i) const {
    const std::int64_t at = skipped + i;
    return at < run ? base + at : base + at / run * stride + at % run;
  }
};

// These are bound once per call before the first step; the loop only passes them on.
struct KernelArgs {
  const Tensor* operands = nullptr;  // operands in the order of the op's operand list
  const Attr* attrs = nullptr;       // attributes in the order of the op's attribute list
  void* workspace = nullptr;         // memory of as many bytes as the kernel's workspace() returned
  std::int64_t layer = 0;            // number of the segment's repetition that runs
  std::int32_t operand_count = 0;
  // Bit i: this launch is the first contribution to the sum in operand i, whose bytes are uninitialized:
  // write them all, read none. It is set only for operands in KernelDef::writes_first.
  std::uint32_t first = 0;
  // For an op of `update`, this describes operand 0, if that is a parameter or a part of several packed
  // together, where elements that are not listed are padding; -1 means that it is neither.
  const TensorElements* updates = nullptr;
  std::int32_t update_count = -1;
  std::uint32_t changes = 0;  // bit i: operand i is written or updated, rather than read alone
  std::int64_t workspace_bytes = 0;

  bool begins(int i) const { return (first >> i & 1) != 0; }
  bool changed(int i) const { return (changes >> i & 1) != 0; }
};

// Holds the resources that the device provides for one launch.
struct KernelContext {
  const Workers* workers = nullptr;  // set by CPU devices
  void* stream = nullptr;            // set by CUDA devices
};

using Kernel = void (*)(const KernelArgs&, const KernelContext&);

inline constexpr int max_operands = 14;
inline constexpr int max_marks = 8;

// Describes one operand as rules see it: the caller decides whether its extents are local or global.
struct OperandShape {
  bool present = false;
  DType dtype = DType::f32;
  std::int32_t rank = 0;
  Dim dims[max_dims] = {};

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[i].extent;
    return n;
  }
  std::int64_t bytes() const { return present ? elements() * size_of(dtype) : 0; }
};

struct OpShape;

// Defines one op's kernel on one device.
struct KernelDef {
  const char* op = nullptr;
  // Returns the kernel for these operand types and shapes, or null: then the planner refuses, naming op and
  // types.
  Kernel (*select)(const OpShape& shape) = nullptr;
  // Returns the bytes of workspace that one launch needs with `threads` workers; null means none.
  std::int64_t (*workspace)(const OpShape& shape, std::int32_t threads) = nullptr;
  // Bit i: the kernel can write the first contribution to operand i, which is updated, as KernelArgs::first
  // asks. All other sums are cleared before they are added to.
  std::uint32_t writes_first = 0;
};

}  // namespace prun
