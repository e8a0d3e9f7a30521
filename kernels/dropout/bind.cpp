// Launches dropout, which is its own gradient.
#include "dropout/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/dropout.hpp"

namespace prun::cuda {
namespace {

template <class T>
void dropout(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Dropout> op(args);
  const Tensor& x = op["x"];
  const DropoutShape shape{.batch = x.dim[0],
                           .seq = x.dim[1],
                           .width = x.inner(x.rank - 2),
                           .first_position = x.start[1],
                           .first_channel = x.start[2] * x.inner(x.rank - 3),
                           .p = op.real("p"),
                           .layer = args.layer,
                           .stream = op.integer("stream"),
                           .positions = op["positions"].as<const std::int32_t>()};
  cuda::dropout(op["x"].as<const T>(), op["samples"].as<const std::int64_t>(), op["seed"].as<const double>(),
                op["y"].as<T>(), shape, stream_of(context));
}

Kernel select_dropout(const OpShape& shape) {
  const ShapeOf<ops::Dropout> s(shape);
  if (!same_type(s, {"x", "y"}) || s["samples"].dtype != DType::i64 || !all_double(s, {"seed"}))
    return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return dropout<T>; });
}

}  // namespace

std::vector<DeviceOp> dropout_ops(const OpChoices&) { return {{{ops::Dropout::kind, select_dropout}}}; }

}  // namespace prun::cuda
