// Launches gelu, swiglu and geglu with their gradients.
#include "cuda/activation.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

template <class T>
void gelu(const KernelArgs& args, const KernelContext& context) {
  cuda::gelu(data<const T>(args, 0), data<T>(args, 1), args.operands[1].elements(), stream_of(context));
}

template <class T>
void gelu_grad(const KernelArgs& args, const KernelContext& context) {
  cuda::gelu_grad(data<const T>(args, 0), data<const T>(args, 1), data<T>(args, 2),
                  args.operands[2].elements(), stream_of(context));
}

template <class T>
void gelu_erf(const KernelArgs& args, const KernelContext& context) {
  cuda::gelu_erf(data<const T>(args, 0), data<T>(args, 1), args.operands[1].elements(), stream_of(context));
}

template <class T>
void gelu_erf_grad(const KernelArgs& args, const KernelContext& context) {
  cuda::gelu_erf_grad(data<const T>(args, 0), data<const T>(args, 1), data<T>(args, 2),
                      args.operands[2].elements(), stream_of(context));
}

// x has the shape [.., 2, width].
template <class T, auto compute>
void gated(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  compute(data<const T>(args, 0), data<T>(args, 1), x.outer(2), x.inner(1), stream_of(context));
}

template <class T, auto compute>
void gated_grad(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[1];
  compute(data<const T>(args, 0), data<const T>(args, 1), data<T>(args, 2), x.outer(2), x.inner(1),
          stream_of(context));
}

Kernel select_gelu(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return gelu<T>; });
}

Kernel select_gelu_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return gelu_grad<T>; });
}

Kernel select_gelu_erf(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return gelu_erf<T>; });
}

Kernel select_gelu_erf_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return gelu_erf_grad<T>; });
}

Kernel select_swiglu(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return gated<T, cuda::swiglu<T>>; });
}

Kernel select_swiglu_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return by_value(s.operand[0].dtype,
                  []<class T>() -> Kernel { return gated_grad<T, cuda::swiglu_grad<T>>; });
}

Kernel select_geglu(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return gated<T, cuda::geglu<T>>; });
}

Kernel select_geglu_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return gated_grad<T, cuda::geglu_grad<T>>; });
}

}  // namespace

std::vector<DeviceOp> activation_ops(const OpChoices&) {
  return {{{"gelu", select_gelu}},         {{"gelu_grad", select_gelu_grad}},
          {{"gelu_erf", select_gelu_erf}}, {{"gelu_erf_grad", select_gelu_erf_grad}},
          {{"swiglu", select_swiglu}},     {{"swiglu_grad", select_swiglu_grad}},
          {{"geglu", select_geglu}},       {{"geglu_grad", select_geglu_grad}}};
}

}  // namespace prun::cuda
