// Launches bias_grad: dy summed over its leading dimensions.
#include "bias/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/bias.hpp"

namespace prun::cuda {
namespace {

template <class T, class S>
void bias_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::BiasGrad> op(args);
  const std::int64_t width = op["dbias"].elements();
  cuda::bias_grad<T, S>(op["dy"].as<const T>(), sum_in<S>(op, "dbias"), op["dy"].elements() / width, width,
                        args.workspace, stream_of(context));
}

std::int64_t workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::BiasGrad> s(shape);
  const std::int64_t width = s["dbias"].elements();
  return by_value(s["dy"].dtype, [&]<class T>() -> std::int64_t {
    return bias_grad_workspace<T>(s["dy"].elements() / width, width);
  });
}

Kernel select_bias_grad(const OpShape& shape) {
  const ShapeOf<ops::BiasGrad> s(shape);
  return by_sum(s, "dy", {"dbias"}, []<class T, class S>() -> Kernel { return bias_grad<T, S>; });
}

}  // namespace

std::vector<DeviceOp> bias_ops(const OpChoices&) {
  return {{{ops::BiasGrad::kind, select_bias_grad, workspace, bits_of<ops::BiasGrad>("dbias")}}};
}

}  // namespace prun::cuda
