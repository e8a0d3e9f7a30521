// Implements the ops around an exchange along a dimension: blocks made and undone, a part taken, a summand
// gated. It moves bytes of any type.
#include <cstring>
#include <vector>

#include "cpu/isa.hpp"
#include "prun/op.hpp"
#include "prun/ops/collective.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> collective_kernels();

namespace {

using Index = std::int64_t;

Index bytes_from(const Tensor& x, Index dim) {
  Index n = size_of(x.dtype);
  for (Index i = dim; i < x.rank; ++i) n *= x.dim[i];
  return n;
}

Index before(const Tensor& x, Index dim) {
  Index n = 1;
  for (Index i = 0; i < dim; ++i) n *= x.dim[i];
  return n;
}

// Sets to[b][a] = from[a][b], where each is a run of `bytes`.
void swap_outer(const KernelContext& context, const void* from, void* to, Index a, Index b, Index bytes) {
  parallel_ranges(*context.workers, a * b, 1, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      std::memcpy(static_cast<char*>(to) + (i % b * a + i / b) * bytes,
                  static_cast<const char*>(from) + i * bytes, static_cast<std::size_t>(bytes));
  });
}

// Operand 0 is x[lead.., d, rest..], operand 1 holds its blocks.
void block(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Block> op(args);
  const Tensor &x = op["x"], &blocks = op["blocks"];
  const Index dim = op.integer("dim"), parts = op.integer("parts");
  swap_outer(context, x.data, blocks.data, before(x, dim), parts, bytes_from(x, dim) / parts);
}

void unblock(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Unblock> op(args);
  const Tensor &blocks = op["blocks"], &y = op["y"];
  const Index dim = op.integer("dim"), parts = op.integer("parts");
  swap_outer(context, blocks.data, y.data, parts, before(y, dim), bytes_from(y, dim) / parts);
}

void slice(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Slice> op(args);
  const Tensor &x = op["x"], &y = op["y"];
  const Index dim = op.integer("dim"), all = bytes_from(x, dim), part = bytes_from(y, dim);
  const Index first = (y.start[dim] - x.start[dim]) * bytes_from(x, dim + 1);
  parallel_ranges(*context.workers, before(x, dim), 1, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      std::memcpy(y.as<char>() + i * part, x.as<const char>() + i * all + first,
                  static_cast<std::size_t>(part));
  });
}

void gate(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::Gate> op(args);
  const Tensor &x = op["x"], &y = op["y"];
  const auto bytes = static_cast<std::size_t>(x.elements() * size_of(x.dtype));
  if (*op["open"].as<const double>() != 0)
    std::memcpy(y.data, x.data, bytes);
  else
    std::memset(y.data, 0, bytes);
}

template <Kernel K>
Kernel select(const OpShape&) {
  return K;
}

}  // namespace

std::vector<KernelDef> collective_kernels() {
  return {{ops::Block::kind, select<block>},
          {ops::Unblock::kind, select<unblock>},
          {ops::Slice::kind, select<slice>},
          {ops::Gate::kind, select<gate>}};
}

}  // namespace prun::cpu::PRUN_ISA
