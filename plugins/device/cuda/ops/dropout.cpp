// Launches dropout, which is its own gradient.
#include "cuda/dropout.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

template <class T>
void dropout(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  const DropoutShape shape{.batch = x.dim[0],
                           .seq = x.dim[1],
                           .width = x.inner(x.rank - 2),
                           .first_position = x.start[1],
                           .first_channel = x.start[2] * x.inner(x.rank - 3),
                           .p = args.attrs[0].f,
                           .layer = args.layer,
                           .stream = args.attrs[1].i,
                           .positions = data<const std::int32_t>(args, 4)};
  cuda::dropout(data<const T>(args, 0), data<const std::int64_t>(args, 1), data<const double>(args, 2),
                data<T>(args, 3), shape, stream_of(context));
}

Kernel select_dropout(const OpShape& s) {
  if (!same_type(s, {0, 3}) || s.operand[1].dtype != DType::i64 || !all_double(s, 2, 3)) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return dropout<T>; });
}

}  // namespace

std::vector<DeviceOp> dropout_ops(const OpChoices&) { return {{{"dropout", select_dropout}}}; }

}  // namespace prun::cuda
