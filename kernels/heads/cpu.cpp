// Implements split_heads, which takes queries, keys and values out of their packed projection, and
// join_heads.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/values.hpp"
#include "prun/ops/heads.hpp"

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
  const ArgsOf<ops::SplitHeads> op(args);
  for_groups(op["q"], context, [=](std::int64_t group, std::int64_t queries, std::int64_t width) {
    const T* x = op["x"].as<const T>() + group * (queries + 2 * width);
    std::copy_n(x, queries, op["q"].as<T>() + group * queries);
    std::copy_n(x + queries, width, op["k"].as<T>() + group * width);
    std::copy_n(x + queries + width, width, op["v"].as<T>() + group * width);
  });
}

template <class T>
void join_heads(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::JoinHeads> op(args);
  for_groups(op["q"], context, [=](std::int64_t group, std::int64_t queries, std::int64_t width) {
    T* x = op["x"].as<T>() + group * (queries + 2 * width);
    std::copy_n(op["q"].as<const T>() + group * queries, queries, x);
    std::copy_n(op["k"].as<const T>() + group * width, width, x + queries);
    std::copy_n(op["v"].as<const T>() + group * width, width, x + queries + width);
  });
}

// Queries are copied as they are.
template <class T>
void split_heads_apart(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SplitHeadsApart> op(args);
  for_groups(op["q"], context, [=](std::int64_t group, std::int64_t queries, std::int64_t width) {
    const T* x = op["x_last"].as<const T>() + group * 2 * width;
    std::copy_n(op["x_first"].as<const T>() + group * queries, queries, op["q"].as<T>() + group * queries);
    std::copy_n(x, width, op["k"].as<T>() + group * width);
    std::copy_n(x + width, width, op["v"].as<T>() + group * width);
  });
}

template <class T>
void join_heads_apart(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::JoinHeadsApart> op(args);
  for_groups(op["q"], context, [=](std::int64_t group, std::int64_t queries, std::int64_t width) {
    T* x = op["x_last"].as<T>() + group * 2 * width;
    std::copy_n(op["q"].as<const T>() + group * queries, queries, op["x_first"].as<T>() + group * queries);
    std::copy_n(op["k"].as<const T>() + group * width, width, x);
    std::copy_n(op["v"].as<const T>() + group * width, width, x + width);
  });
}

Kernel select_split(const OpShape& shape) {
  const ShapeOf<ops::SplitHeads> s(shape);
  if (!same_type(s, {"x", "q", "k", "v"})) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return split_heads<T>; });
}

Kernel select_join(const OpShape& shape) {
  const ShapeOf<ops::JoinHeads> s(shape);
  if (!same_type(s, {"q", "k", "v", "x"})) return nullptr;
  return choose_value(s["q"].dtype, []<class T>() -> Kernel { return join_heads<T>; });
}

Kernel select_split_apart(const OpShape& shape) {
  const ShapeOf<ops::SplitHeadsApart> s(shape);
  if (!same_type(s, {"x_first", "x_last", "q", "k", "v"})) return nullptr;
  return choose_value(s["x_first"].dtype, []<class T>() -> Kernel { return split_heads_apart<T>; });
}

Kernel select_join_apart(const OpShape& shape) {
  const ShapeOf<ops::JoinHeadsApart> s(shape);
  if (!same_type(s, {"q", "k", "v", "x_first", "x_last"})) return nullptr;
  return choose_value(s["q"].dtype, []<class T>() -> Kernel { return join_heads_apart<T>; });
}

}  // namespace

std::vector<KernelDef> heads_kernels();
std::vector<KernelDef> heads_kernels() {
  return {{ops::SplitHeads::kind, select_split},
          {ops::JoinHeads::kind, select_join},
          {ops::SplitHeadsApart::kind, select_split_apart},
          {ops::JoinHeadsApart::kind, select_join_apart}};
}

}  // namespace prun::cpu::PRUN_ISA
