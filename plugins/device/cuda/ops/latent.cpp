// Launches latent_heads, split_latent, narrow_heads and their gradients.
#include "cuda/latent.hpp"

#include "device_op.hpp"

namespace prun::cuda {
namespace {

// Takes the shape from keys [batch, seq, heads, head_dim].
LatentShape shape_of(const Tensor& k, const KernelArgs& args, std::int64_t first,
                     const std::int32_t* positions) {
  return {.batch = k.dim[0],
          .seq = k.dim[1],
          .heads = k.dim[2],
          .head_dim = k.dim[3],
          .turned = args.attrs[8].i,
          .values = args.attrs[9].i,
          .interleaved = args.attrs[10].i != 0,
          .first_position = first,
          .turn = rope_turn(args.attrs),
          .positions = positions};
}

// Takes the operands that begin at x, and at q.
template <class T>
LatentHeads<T> heads_of(const KernelArgs& args, int x, int q) {
  return {data<T>(args, x), data<T>(args, x + 1), data<T>(args, x + 2),
          data<T>(args, q), data<T>(args, q + 1), data<T>(args, q + 2)};
}

template <class T>
void heads(const KernelArgs& args, const KernelContext& context) {
  cuda::latent_heads(
      heads_of<T>(args, 0, 3),
      shape_of(args.operands[4], args, args.operands[0].start[1], data<const std::int32_t>(args, 6)),
      stream_of(context));
}

template <class T>
void heads_at(const KernelArgs& args, const KernelContext& context) {
  LatentShape shape = shape_of(args.operands[5], args, 0, nullptr);
  shape.position = data<const double>(args, 3);
  cuda::latent_heads(heads_of<T>(args, 0, 4), shape, stream_of(context));
}

template <class T>
void heads_grad(const KernelArgs& args, const KernelContext& context) {
  cuda::latent_heads_grad(
      heads_of<T>(args, 3, 0),
      shape_of(args.operands[1], args, args.operands[0].start[1], data<const std::int32_t>(args, 6)),
      stream_of(context));
}

template <class T>
void split(const KernelArgs& args, const KernelContext& context) {
  const Tensor &first = args.operands[1], &last = args.operands[2];
  cuda::split_latent(data<const T>(args, 0), first.as<T>(), last.as<T>(), first.outer(1), first.inner(1),
                     last.inner(1), stream_of(context));
}

template <class T>
void join(const KernelArgs& args, const KernelContext& context) {
  const Tensor &first = args.operands[0], &last = args.operands[1];
  cuda::join_latent(first.as<const T>(), last.as<const T>(), data<T>(args, 2), first.outer(1), first.inner(1),
                    last.inner(1), stream_of(context));
}

template <class T>
void width(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &y = args.operands[1];
  cuda::set_width(x.as<const T>(), y.as<T>(), x.outer(1), x.inner(1), y.inner(1), stream_of(context));
}

Kernel select_heads(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3, 4, 5})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return heads<T>; });
}

Kernel select_heads_at(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 4, 5, 6}) || s.operand[3].dtype != DType::f64) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return heads_at<T>; });
}

Kernel select_heads_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3, 4, 5})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return heads_grad<T>; });
}

Kernel select_split(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return split<T>; });
}

Kernel select_join(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return join<T>; });
}

Kernel select_width(const OpShape& s) {
  if (!same_type(s, {0, 1})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return width<T>; });
}

}  // namespace

std::vector<DeviceOp> latent_ops(const OpChoices&) {
  return {{{"latent_heads", select_heads}},
          {{"latent_heads_at", select_heads_at}},
          {{"latent_heads_grad", select_heads_grad}},
          {{"split_latent", select_split}},
          {{"join_latent", select_join}},
          {{"narrow_heads", select_width}},
          {{"widen_heads", select_width}}};
}

}  // namespace prun::cuda
