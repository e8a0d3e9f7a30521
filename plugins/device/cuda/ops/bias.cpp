// Launches bias_grad: dy summed over its leading dimensions.
#include "cuda/bias.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

template <class T, class S>
void bias_grad(const KernelArgs& args, const KernelContext& context) {
  const std::int64_t width = args.operands[1].elements();
  cuda::bias_grad<T, S>(data<const T>(args, 0), sum_in<S>(args, 1), args.operands[0].elements() / width,
                        width, args.workspace, stream_of(context));
}

std::int64_t workspace(const OpShape& s, std::int32_t) {
  const std::int64_t width = s.operand[1].elements();
  return by_value(s.operand[0].dtype, [&]<class T>() -> std::int64_t {
    return bias_grad_workspace<T>(s.operand[0].elements() / width, width);
  });
}

Kernel select_bias_grad(const OpShape& s) {
  return by_sum(s, 0, {1}, []<class T, class S>() -> Kernel { return bias_grad<T, S>; });
}

}  // namespace

std::vector<DeviceOp> bias_ops(const OpChoices&) {
  return {{{"bias_grad", select_bias_grad, workspace, 1u << 1}}};
}

}  // namespace prun::cuda
