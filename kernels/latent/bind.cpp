// Launches latent_heads, split_latent, narrow_heads and their gradients.
#include "latent/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/latent.hpp"
#include "rope_attrs.hpp"

namespace prun::cuda {
namespace {

// Takes the shape from keys [batch, seq, heads, head_dim].
template <class Op>
LatentShape shape_of(const Tensor& k, const ArgsOf<Op>& op, std::int64_t first,
                     const std::int32_t* positions) {
  return {.batch = k.dim[0],
          .seq = k.dim[1],
          .heads = k.dim[2],
          .head_dim = k.dim[3],
          .turned = op.integer("turned"),
          .values = op.integer("values"),
          .interleaved = op.integer("interleaved") != 0,
          .first_position = first,
          .turn = rope_turn<Op>(static_cast<const KernelArgs&>(op).attrs),
          .positions = positions};
}

template <class T, class Op>
LatentHeads<T> latent_heads_in(const ArgsOf<Op>& op) {
  return {op["x"].template as<T>(), op["kv"].template as<T>(), op["shared"].template as<T>(),
          op["q"].template as<T>(), op["k"].template as<T>(),  op["v"].template as<T>()};
}

template <class T>
void heads(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LatentHeads> op(args);
  cuda::latent_heads(latent_heads_in<T>(op),
                     shape_of(op["k"], op, op["x"].start[1], op["positions"].as<const std::int32_t>()),
                     stream_of(context));
}

template <class T>
void heads_at(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LatentHeadsAt> op(args);
  LatentShape shape = shape_of(op["k"], op, 0, nullptr);
  shape.position = op["position"].as<const double>();
  cuda::latent_heads(latent_heads_in<T>(op), shape, stream_of(context));
}

template <class T>
void heads_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LatentHeadsGrad> op(args);
  const LatentHeads<T> gradients{op["dx"].as<T>(), op["dkv"].as<T>(), op["dshared"].as<T>(),
                                 op["dq"].as<T>(), op["dk"].as<T>(),  op["dv"].as<T>()};
  cuda::latent_heads_grad(gradients,
                          shape_of(op["dk"], op, op["dq"].start[1], op["positions"].as<const std::int32_t>()),
                          stream_of(context));
}

template <class T>
void split(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SplitLatent> op(args);
  const Tensor &first = op["latent"], &last = op["shared"];
  cuda::split_latent(op["x"].as<const T>(), first.as<T>(), last.as<T>(), first.outer(1), first.inner(1),
                     last.inner(1), stream_of(context));
}

template <class T>
void join(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::JoinLatent> op(args);
  const Tensor &first = op["latent"], &last = op["shared"];
  cuda::join_latent(first.as<const T>(), last.as<const T>(), op["x"].as<T>(), first.outer(1), first.inner(1),
                    last.inner(1), stream_of(context));
}

template <class Op, class T>
void width(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<Op> op(args);
  const Tensor &x = op["x"], &y = op["y"];
  cuda::set_width(x.as<const T>(), y.as<T>(), x.outer(1), x.inner(1), y.inner(1), stream_of(context));
}

Kernel select_heads(const OpShape& shape) {
  const ShapeOf<ops::LatentHeads> s(shape);
  if (!same_type(s, {"x", "kv", "shared", "q", "k", "v"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return heads<T>; });
}

Kernel select_heads_at(const OpShape& shape) {
  const ShapeOf<ops::LatentHeadsAt> s(shape);
  if (!same_type(s, {"x", "kv", "shared", "q", "k", "v"}) || s["position"].dtype != DType::f64)
    return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return heads_at<T>; });
}

Kernel select_heads_grad(const OpShape& shape) {
  const ShapeOf<ops::LatentHeadsGrad> s(shape);
  if (!same_type(s, {"dq", "dk", "dv", "dx", "dkv", "dshared"})) return nullptr;
  return by_value(s["dq"].dtype, []<class T>() -> Kernel { return heads_grad<T>; });
}

Kernel select_split(const OpShape& shape) {
  const ShapeOf<ops::SplitLatent> s(shape);
  if (!same_type(s, {"x", "latent", "shared"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return split<T>; });
}

Kernel select_join(const OpShape& shape) {
  const ShapeOf<ops::JoinLatent> s(shape);
  if (!same_type(s, {"latent", "shared", "x"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return join<T>; });
}

template <class Op>
Kernel select_width(const OpShape& shape) {
  const ShapeOf<Op> s(shape);
  if (!same_type(s, {"x", "y"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return width<Op, T>; });
}

}  // namespace

std::vector<DeviceOp> latent_ops(const OpChoices&) {
  return {{{ops::LatentHeads::kind, select_heads}},
          {{ops::LatentHeadsAt::kind, select_heads_at}},
          {{ops::LatentHeadsGrad::kind, select_heads_grad}},
          {{ops::SplitLatent::kind, select_split}},
          {{ops::JoinLatent::kind, select_join}},
          {{ops::NarrowHeads::kind, select_width<ops::NarrowHeads>}},
          {{ops::WidenHeads::kind, select_width<ops::WidenHeads>}}};
}

}  // namespace prun::cuda
