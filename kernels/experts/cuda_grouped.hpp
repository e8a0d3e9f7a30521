// Multiplies groups of rows in bf16 on tensor cores: begin[g] is the first row of group g and begin[groups]
// their number, on the device, where the host need not know them. Sums are in float, each over its channels
// or rows in their order, so that a run gives the same bits every time; a call is one kernel, needs no
// workspace, and CUDA graphs may hold it. Products are those of grouped.cuh but for how they are added up.
#pragma once

#include "cuda/launch.hpp"

namespace prun::cuda {

struct RowGroups {
  const std::int32_t* begin;
  std::int64_t groups;
  std::int64_t rows;  // counts as many as there can be
};

// Are rows at the places that `map` says, or, without one, in order.
struct MappedRows {
  const bf16* data;
  const std::int32_t* map = nullptr;
};

// Computes to[r, n] = sum over k of from[r, k] * weight[group of r][n, k] or, turned, [k, n].
struct GroupedProduct {
  MappedRows from;
  const bf16* weight;
  bf16* to;
  std::int64_t n, k;
};

// Computes sum[g][m, n] += sum over rows r of group g of left[r, m] * right[r, n], or = where it begins: a
// group without rows then has zeros.
template <class S>
struct GroupedSums {
  MappedRows left;
  const bf16* right;
  Sum<S> sum;
  std::int64_t m, n;
};

// Says whether the current device can run the call, and widths and pointers are such that chunks of 16 bytes
// can be copied.
bool tensor_grouped_takes(const GroupedProduct& call, const RowGroups& groups);
template <class S>
bool tensor_grouped_takes(const GroupedSums<S>& call, const RowGroups& groups);

// Says which threads multiply. Where device or build have no pairs, warps do.
enum class GroupedForm {
  warps,  // run on any device since Ampere
  pairs   // run on Hopper: four warps multiply while others copy, in two blocks that share the right factor
};

// Returns the faster form on the current device.
GroupedForm grouped_form();

template <bool turned>
void tensor_grouped(const GroupedProduct& call, const RowGroups& groups, GroupedForm form, Stream stream);

// S is bf16 or float.
template <class S>
void tensor_grouped(const GroupedSums<S>& call, const RowGroups& groups, GroupedForm form, Stream stream);

}  // namespace prun::cuda
