// Launches gelu, swiglu and geglu, in both forms, with their gradients.
#include "activation/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/activation.hpp"

namespace prun::cuda {
namespace {

template <class T>
void gelu(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Gelu> op(args);
  cuda::gelu(op["x"].as<const T>(), op["y"].as<T>(), op["y"].elements(), stream_of(context));
}

template <class T>
void gelu_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::GeluGrad> op(args);
  cuda::gelu_grad(op["dy"].as<const T>(), op["x"].as<const T>(), op["dx"].as<T>(), op["dx"].elements(),
                  stream_of(context));
}

template <class T>
void gelu_erf(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::GeluErf> op(args);
  cuda::gelu_erf(op["x"].as<const T>(), op["y"].as<T>(), op["y"].elements(), stream_of(context));
}

template <class T>
void gelu_erf_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::GeluErfGrad> op(args);
  cuda::gelu_erf_grad(op["dy"].as<const T>(), op["x"].as<const T>(), op["dx"].as<T>(), op["dx"].elements(),
                      stream_of(context));
}

// x has the shape [.., 2, width].
template <class T, class Op, auto compute>
void gated(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<Op> op(args);
  const Tensor &x = op["x"], &y = op["y"];
  compute(x.as<const T>(), y.as<T>(), x.outer(2), x.inner(1), stream_of(context));
}

template <class T, class Op, auto compute>
void gated_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<Op> op(args);
  const Tensor &dy = op["dy"], &x = op["x"], &dx = op["dx"];
  compute(dy.as<const T>(), x.as<const T>(), dx.as<T>(), x.outer(2), x.inner(1), stream_of(context));
}

Kernel select_gelu(const OpShape& shape) {
  const ShapeOf<ops::Gelu> s(shape);
  if (!same_type(s, {"x", "y"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return gelu<T>; });
}

Kernel select_gelu_grad(const OpShape& shape) {
  const ShapeOf<ops::GeluGrad> s(shape);
  if (!same_type(s, {"dy", "x", "dx"})) return nullptr;
  return by_value(s["dy"].dtype, []<class T>() -> Kernel { return gelu_grad<T>; });
}

Kernel select_gelu_erf(const OpShape& shape) {
  const ShapeOf<ops::GeluErf> s(shape);
  if (!same_type(s, {"x", "y"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return gelu_erf<T>; });
}

Kernel select_gelu_erf_grad(const OpShape& shape) {
  const ShapeOf<ops::GeluErfGrad> s(shape);
  if (!same_type(s, {"dy", "x", "dx"})) return nullptr;
  return by_value(s["dy"].dtype, []<class T>() -> Kernel { return gelu_erf_grad<T>; });
}

Kernel select_swiglu(const OpShape& shape) {
  const ShapeOf<ops::SwiGlu> s(shape);
  if (!same_type(s, {"x", "y"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return gated<T, ops::SwiGlu, cuda::swiglu<T>>; });
}

Kernel select_swiglu_grad(const OpShape& shape) {
  const ShapeOf<ops::SwiGluGrad> s(shape);
  if (!same_type(s, {"dy", "x", "dx"})) return nullptr;
  return by_value(s["dy"].dtype,
                  []<class T>() -> Kernel { return gated_grad<T, ops::SwiGluGrad, cuda::swiglu_grad<T>>; });
}

Kernel select_geglu(const OpShape& shape) {
  const ShapeOf<ops::GeGlu> s(shape);
  if (!same_type(s, {"x", "y"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return gated<T, ops::GeGlu, cuda::geglu<T>>; });
}

Kernel select_geglu_grad(const OpShape& shape) {
  const ShapeOf<ops::GeGluGrad> s(shape);
  if (!same_type(s, {"dy", "x", "dx"})) return nullptr;
  return by_value(s["dy"].dtype,
                  []<class T>() -> Kernel { return gated_grad<T, ops::GeGluGrad, cuda::geglu_grad<T>>; });
}

Kernel select_geglu_erf(const OpShape& shape) {
  const ShapeOf<ops::GeGluErf> s(shape);
  if (!same_type(s, {"x", "y"})) return nullptr;
  return by_value(s["x"].dtype,
                  []<class T>() -> Kernel { return gated<T, ops::GeGluErf, cuda::geglu_erf<T>>; });
}

Kernel select_geglu_erf_grad(const OpShape& shape) {
  const ShapeOf<ops::GeGluErfGrad> s(shape);
  if (!same_type(s, {"dy", "x", "dx"})) return nullptr;
  return by_value(s["dy"].dtype, []<class T>() -> Kernel {
    return gated_grad<T, ops::GeGluErfGrad, cuda::geglu_erf_grad<T>>;
  });
}

}  // namespace

std::vector<DeviceOp> activation_ops(const OpChoices&) {
  return {{{ops::Gelu::kind, select_gelu}},          {{ops::GeluGrad::kind, select_gelu_grad}},
          {{ops::GeluErf::kind, select_gelu_erf}},   {{ops::GeluErfGrad::kind, select_gelu_erf_grad}},
          {{ops::SwiGlu::kind, select_swiglu}},      {{ops::SwiGluGrad::kind, select_swiglu_grad}},
          {{ops::GeGlu::kind, select_geglu}},        {{ops::GeGluGrad::kind, select_geglu_grad}},
          {{ops::GeGluErf::kind, select_geglu_erf}}, {{ops::GeGluErfGrad::kind, select_geglu_erf_grad}}};
}

}  // namespace prun::cuda
