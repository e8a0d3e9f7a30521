// Launches the ops around an exchange along a dimension.
#include "cuda/collective.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

std::int64_t bytes_from(const Tensor& x, std::int64_t dim) {
  return x.inner(x.rank - static_cast<int>(dim)) * size_of(x.dtype);
}

std::int64_t before(const Tensor& x, std::int64_t dim) { return x.outer(x.rank - static_cast<int>(dim)); }

// Operand 0 is x[lead.., d, rest..], operand 1 holds its blocks.
void block(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  const std::int64_t dim = args.attrs[1].i, parts = args.attrs[2].i;
  swap_outer(x.data, args.operands[1].data, before(x, dim), parts, bytes_from(x, dim) / parts,
             stream_of(context));
}

void unblock(const KernelArgs& args, const KernelContext& context) {
  const Tensor& y = args.operands[1];
  const std::int64_t dim = args.attrs[1].i, parts = args.attrs[2].i;
  swap_outer(args.operands[0].data, y.data, parts, before(y, dim), bytes_from(y, dim) / parts,
             stream_of(context));
}

void slice(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &y = args.operands[1];
  const std::int64_t dim = args.attrs[1].i;
  take(x.data, y.data, before(x, dim), bytes_from(x, dim),
       (y.start[dim] - x.start[dim]) * bytes_from(x, dim + 1), bytes_from(y, dim), stream_of(context));
}

void gate(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  cuda::gate(x.data, data<const double>(args, 1), args.operands[2].data, x.elements() * size_of(x.dtype),
             stream_of(context));
}

template <Kernel kernel>
Kernel select(const OpShape&) {
  return kernel;
}

}  // namespace

std::vector<DeviceOp> collective_ops(const OpChoices&) {
  return {{{"block", select<block>}},
          {{"unblock", select<unblock>}},
          {{"slice", select<slice>}},
          {{"gate", select<gate>}}};
}

}  // namespace prun::cuda
