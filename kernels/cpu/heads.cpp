// Implements split_heads, which takes queries, keys and values out of their packed projection, and
// join_heads.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/values.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

constexpr std::int64_t grain = 4096;  // counts elements

// Calls body(group, queries, width) for every head group of every position, with its numbers of elements in q
// and in k.
template <class Body>
void for_groups(const Tensor& q, const KernelContext& context, const Body& body) {
  const std::int64_t queries = q.inner(2), width = q.inner(1);
  const std::int64_t groups_each = std::max<std::int64_t>(1, grain / (queries + 2 * width));
  parallel_ranges(*context.workers, q.outer(2), groups_each, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t group = begin; group < end; ++group) body(group, queries, width);
  });
}

template <class T>
void split_heads(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  for_groups(o[1], context, [=](std::int64_t group, std::int64_t queries, std::int64_t width) {
    const T* x = o[0].as<const T>() + group * (queries + 2 * width);
    std::copy_n(x, queries, o[1].as<T>() + group * queries);
    std::copy_n(x + queries, width, o[2].as<T>() + group * width);
    std::copy_n(x + queries + width, width, o[3].as<T>() + group * width);
  });
}

template <class T>
void join_heads(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  for_groups(o[0], context, [=](std::int64_t group, std::int64_t queries, std::int64_t width) {
    T* x = o[3].as<T>() + group * (queries + 2 * width);
    std::copy_n(o[0].as<const T>() + group * queries, queries, x);
    std::copy_n(o[1].as<const T>() + group * width, width, x + queries);
    std::copy_n(o[2].as<const T>() + group * width, width, x + queries + width);
  });
}

// Queries are copied as they are.
template <class T>
void split_heads_apart(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  for_groups(o[2], context, [=](std::int64_t group, std::int64_t queries, std::int64_t width) {
    const T* x = o[1].as<const T>() + group * 2 * width;
    std::copy_n(o[0].as<const T>() + group * queries, queries, o[2].as<T>() + group * queries);
    std::copy_n(x, width, o[3].as<T>() + group * width);
    std::copy_n(x + width, width, o[4].as<T>() + group * width);
  });
}

template <class T>
void join_heads_apart(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  for_groups(o[0], context, [=](std::int64_t group, std::int64_t queries, std::int64_t width) {
    T* x = o[4].as<T>() + group * 2 * width;
    std::copy_n(o[0].as<const T>() + group * queries, queries, o[3].as<T>() + group * queries);
    std::copy_n(o[1].as<const T>() + group * width, width, x);
    std::copy_n(o[2].as<const T>() + group * width, width, x + width);
  });
}

Kernel select_split(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return split_heads<T>; });
}

Kernel select_join(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return join_heads<T>; });
}

Kernel select_split_apart(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3, 4})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return split_heads_apart<T>; });
}

Kernel select_join_apart(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3, 4})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return join_heads_apart<T>; });
}

}  // namespace

std::vector<KernelDef> heads_kernels();
std::vector<KernelDef> heads_kernels() {
  return {{"split_heads", select_split},
          {"join_heads", select_join},
          {"split_heads_apart", select_split_apart},
          {"join_heads_apart", select_join_apart}};
}

}  // namespace prun::cpu::PRUN_ISA
