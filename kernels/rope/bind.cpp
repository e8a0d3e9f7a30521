// Launches rope and its gradient.
#include "rope/cuda.hpp"

#include "device_op.hpp"
#include "rope_attrs.hpp"

namespace prun::cuda {
namespace {

// Takes the shape from x[batch, seq, heads, packed, head_dim].
RopeShape rope_shape(const Tensor& x, const KernelArgs& args, const std::int32_t* positions) {
  return {.batch = x.dim[0],
          .seq = x.dim[1],
          .heads = x.dim[2],
          .packed = x.dim[3],
          .head_dim = x.dim[4],
          .first_position = x.start[1],
          .turn = rope_turn_of_heads(args.attrs),
          .positions = positions,
          .pairs = rope_pairs(args.attrs, x.dim[4])};
}

template <class T>
void rope(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Rope> op(args);
  cuda::rope(op["x"].as<const T>(), op["q"].as<T>(), op["k"].as<T>(), op["v"].as<T>(),
             rope_shape(op["x"], args, op["positions"].as<const std::int32_t>()), stream_of(context));
}

template <class T>
void rope_at(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RopeAt> op(args);
  RopeShape shape = rope_shape(op["x"], args, nullptr);
  shape.first_position = 0;
  shape.position = op["position"].as<const double>();
  cuda::rope(op["x"].as<const T>(), op["q"].as<T>(), op["k"].as<T>(), op["v"].as<T>(), shape,
             stream_of(context));
}

template <class T>
void rope_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RopeGrad> op(args);
  cuda::rope_grad(op["dq"].as<const T>(), op["dk"].as<const T>(), op["dv"].as<const T>(), op["dx"].as<T>(),
                  rope_shape(op["dx"], args, op["positions"].as<const std::int32_t>()), stream_of(context));
}

// Takes the shape from q[batch, seq, heads, queries, head_dim]; keys and values are in another tensor beside
// it.
RopeShape rope_shape_of_two(const Tensor& q, const KernelArgs& args, const Tensor& positions) {
  RopeShape shape = rope_shape(q, args, positions.as<const std::int32_t>());
  shape.packed += 2;
  return shape;
}

template <class T>
void rope_apart(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RopeApart> op(args);
  cuda::rope_apart(op["x_first"].as<const T>(), op["x_last"].as<const T>(), op["q"].as<T>(), op["k"].as<T>(),
                   op["v"].as<T>(), rope_shape_of_two(op["q"], args, op["positions"]), stream_of(context));
}

template <class T>
void rope_apart_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RopeApartGrad> op(args);
  cuda::rope_apart_grad(op["dq"].as<const T>(), op["dk"].as<const T>(), op["dv"].as<const T>(),
                        op["dx_first"].as<T>(), op["dx_last"].as<T>(),
                        rope_shape_of_two(op["dq"], args, op["positions"]), stream_of(context));
}

Kernel select_rope_apart(const OpShape& shape) {
  const ShapeOf<ops::RopeApart> s(shape);
  if (!same_type(s, {"x_first", "x_last", "q", "k", "v"})) return nullptr;
  return by_value(s["x_first"].dtype, []<class T>() -> Kernel { return rope_apart<T>; });
}

Kernel select_rope_apart_grad(const OpShape& shape) {
  const ShapeOf<ops::RopeApartGrad> s(shape);
  if (!same_type(s, {"dq", "dk", "dv", "dx_first", "dx_last"})) return nullptr;
  return by_value(s["dq"].dtype, []<class T>() -> Kernel { return rope_apart_grad<T>; });
}

Kernel select_rope(const OpShape& shape) {
  const ShapeOf<ops::Rope> s(shape);
  if (!same_type(s, {"x", "q", "k", "v"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return rope<T>; });
}

Kernel select_rope_at(const OpShape& shape) {
  const ShapeOf<ops::RopeAt> s(shape);
  if (!same_type(s, {"x", "q", "k", "v"}) || !all_double(s, {"position"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return rope_at<T>; });
}

Kernel select_rope_grad(const OpShape& shape) {
  const ShapeOf<ops::RopeGrad> s(shape);
  if (!same_type(s, {"dq", "dk", "dv", "dx"})) return nullptr;
  return by_value(s["dq"].dtype, []<class T>() -> Kernel { return rope_grad<T>; });
}

}  // namespace

std::vector<DeviceOp> rope_ops(const OpChoices&) {
  return {{{ops::Rope::kind, select_rope}},
          {{ops::RopeAt::kind, select_rope_at}},
          {{ops::RopeGrad::kind, select_rope_grad}},
          {{ops::RopeApart::kind, select_rope_apart}},
          {{ops::RopeApartGrad::kind, select_rope_apart_grad}}};
}

}  // namespace prun::cuda
