// Launches the ops around an exchange along a dimension.
#include "collective/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/collective.hpp"

namespace prun::cuda {
namespace {

std::int64_t bytes_from(const Tensor& x, std::int64_t dim) {
  return x.inner(x.rank - static_cast<int>(dim)) * size_of(x.dtype);
}

std::int64_t before(const Tensor& x, std::int64_t dim) { return x.outer(x.rank - static_cast<int>(dim)); }

// Operand 0 is x[lead.., d, rest..], operand 1 holds its blocks.
void block(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Block> op(args);
  const Tensor& x = op["x"];
  const std::int64_t dim = op.integer("dim"), parts = op.integer("parts");
  swap_outer(x.data, op["blocks"].data, before(x, dim), parts, bytes_from(x, dim) / parts,
             stream_of(context));
}

void unblock(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Unblock> op(args);
  const Tensor& y = op["y"];
  const std::int64_t dim = op.integer("dim"), parts = op.integer("parts");
  swap_outer(op["blocks"].data, y.data, parts, before(y, dim), bytes_from(y, dim) / parts,
             stream_of(context));
}

void slice(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Slice> op(args);
  const Tensor &x = op["x"], &y = op["y"];
  const std::int64_t dim = op.integer("dim");
  take(x.data, y.data, before(x, dim), bytes_from(x, dim),
       (y.start[dim] - x.start[dim]) * bytes_from(x, dim + 1), bytes_from(y, dim), stream_of(context));
}

void gate(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Gate> op(args);
  const Tensor& x = op["x"];
  cuda::gate(x.data, op["open"].as<const double>(), op["y"].data, x.elements() * size_of(x.dtype),
             stream_of(context));
}

template <Kernel kernel>
Kernel select(const OpShape&) {
  return kernel;
}

}  // namespace

std::vector<DeviceOp> collective_ops(const OpChoices&) {
  return {{{ops::Block::kind, select<block>}},
          {{ops::Unblock::kind, select<unblock>}},
          {{ops::Slice::kind, select<slice>}},
          {{ops::Gate::kind, select<gate>}}};
}

}  // namespace prun::cuda
