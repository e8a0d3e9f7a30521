// Launches rope, rope_grad, split_heads and join_heads, which take queries, keys and values out of their
// packed projection and put them together again.
#include "cuda/heads.hpp"

#include "cuda/rope.hpp"
#include "device_op.hpp"

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

HeadsShape heads_shape(const Tensor& x) { return {x.outer(2), x.dim[3], x.dim[4]}; }

template <class T>
void rope(const KernelArgs& args, const KernelContext& context) {
  cuda::rope(data<const T>(args, 0), data<T>(args, 1), data<T>(args, 2), data<T>(args, 3),
             rope_shape(args.operands[0], args, data<const std::int32_t>(args, 4)), stream_of(context));
}

template <class T>
void rope_at(const KernelArgs& args, const KernelContext& context) {
  RopeShape shape = rope_shape(args.operands[0], args, nullptr);
  shape.first_position = 0;
  shape.position = data<const double>(args, 1);
  cuda::rope(data<const T>(args, 0), data<T>(args, 2), data<T>(args, 3), data<T>(args, 4), shape,
             stream_of(context));
}

template <class T>
void rope_grad(const KernelArgs& args, const KernelContext& context) {
  cuda::rope_grad(data<const T>(args, 0), data<const T>(args, 1), data<const T>(args, 2), data<T>(args, 3),
                  rope_shape(args.operands[3], args, data<const std::int32_t>(args, 4)), stream_of(context));
}

template <class T>
void split_heads(const KernelArgs& args, const KernelContext& context) {
  cuda::split_heads(data<const T>(args, 0), data<T>(args, 1), data<T>(args, 2), data<T>(args, 3),
                    heads_shape(args.operands[0]), stream_of(context));
}

template <class T>
void join_heads(const KernelArgs& args, const KernelContext& context) {
  cuda::join_heads(data<const T>(args, 0), data<const T>(args, 1), data<const T>(args, 2), data<T>(args, 3),
                   heads_shape(args.operands[3]), stream_of(context));
}

// Takes the shape from q[batch, seq, heads, queries, head_dim]; keys and values are in another tensor beside
// it.
RopeShape rope_shape_of_two(const Tensor& q, const KernelArgs& args) {
  RopeShape shape = rope_shape(q, args, data<const std::int32_t>(args, 5));
  shape.packed += 2;
  return shape;
}

HeadsShape heads_shape_of_two(const Tensor& q) { return {q.outer(2), q.dim[3] + 2, q.dim[4]}; }

template <class T>
void rope_apart(const KernelArgs& args, const KernelContext& context) {
  cuda::rope_apart(data<const T>(args, 0), data<const T>(args, 1), data<T>(args, 2), data<T>(args, 3),
                   data<T>(args, 4), rope_shape_of_two(args.operands[2], args), stream_of(context));
}

template <class T>
void rope_apart_grad(const KernelArgs& args, const KernelContext& context) {
  cuda::rope_apart_grad(data<const T>(args, 0), data<const T>(args, 1), data<const T>(args, 2),
                        data<T>(args, 3), data<T>(args, 4), rope_shape_of_two(args.operands[0], args),
                        stream_of(context));
}

template <class T>
void split_heads_apart(const KernelArgs& args, const KernelContext& context) {
  cuda::split_heads_apart(data<const T>(args, 0), data<const T>(args, 1), data<T>(args, 2), data<T>(args, 3),
                          data<T>(args, 4), heads_shape_of_two(args.operands[2]), stream_of(context));
}

template <class T>
void join_heads_apart(const KernelArgs& args, const KernelContext& context) {
  cuda::join_heads_apart(data<const T>(args, 0), data<const T>(args, 1), data<const T>(args, 2),
                         data<T>(args, 3), data<T>(args, 4), heads_shape_of_two(args.operands[0]),
                         stream_of(context));
}

Kernel select_rope_apart(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3, 4})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return rope_apart<T>; });
}

Kernel select_rope_apart_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3, 4})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return rope_apart_grad<T>; });
}

Kernel select_split_heads_apart(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3, 4})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return split_heads_apart<T>; });
}

Kernel select_join_heads_apart(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3, 4})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return join_heads_apart<T>; });
}

Kernel select_rope(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return rope<T>; });
}

Kernel select_rope_at(const OpShape& s) {
  if (!same_type(s, {0, 2, 3, 4}) || !all_double(s, 1, 2)) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return rope_at<T>; });
}

Kernel select_rope_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return rope_grad<T>; });
}

Kernel select_split_heads(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return split_heads<T>; });
}

Kernel select_join_heads(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return join_heads<T>; });
}

}  // namespace

std::vector<DeviceOp> heads_ops(const OpChoices&) {
  return {{{"rope", select_rope}},
          {{"rope_at", select_rope_at}},
          {{"rope_grad", select_rope_grad}},
          {{"split_heads", select_split_heads}},
          {{"join_heads", select_join_heads}},
          {{"rope_apart", select_rope_apart}},
          {{"rope_apart_grad", select_rope_apart_grad}},
          {{"split_heads_apart", select_split_heads_apart}},
          {{"join_heads_apart", select_join_heads_apart}}};
}

}  // namespace prun::cuda
