// Launches split_heads and join_heads, which take queries, keys and values out of their packed projection and
// put them together again.
#include "heads/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/heads.hpp"

namespace prun::cuda {
namespace {

HeadsShape heads_shape(const Tensor& x) { return {x.outer(2), x.dim[3], x.dim[4]}; }

template <class T>
void split_heads(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SplitHeads> op(args);
  cuda::split_heads(op["x"].as<const T>(), op["q"].as<T>(), op["k"].as<T>(), op["v"].as<T>(),
                    heads_shape(op["x"]), stream_of(context));
}

template <class T>
void join_heads(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::JoinHeads> op(args);
  cuda::join_heads(op["q"].as<const T>(), op["k"].as<const T>(), op["v"].as<const T>(), op["x"].as<T>(),
                   heads_shape(op["x"]), stream_of(context));
}

HeadsShape heads_shape_of_two(const Tensor& q) { return {q.outer(2), q.dim[3] + 2, q.dim[4]}; }

template <class T>
void split_heads_apart(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::SplitHeadsApart> op(args);
  cuda::split_heads_apart(op["x_first"].as<const T>(), op["x_last"].as<const T>(), op["q"].as<T>(),
                          op["k"].as<T>(), op["v"].as<T>(), heads_shape_of_two(op["q"]), stream_of(context));
}

template <class T>
void join_heads_apart(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::JoinHeadsApart> op(args);
  cuda::join_heads_apart(op["q"].as<const T>(), op["k"].as<const T>(), op["v"].as<const T>(),
                         op["x_first"].as<T>(), op["x_last"].as<T>(), heads_shape_of_two(op["q"]),
                         stream_of(context));
}

Kernel select_split_heads_apart(const OpShape& shape) {
  const ShapeOf<ops::SplitHeadsApart> s(shape);
  if (!same_type(s, {"x_first", "x_last", "q", "k", "v"})) return nullptr;
  return by_value(s["x_first"].dtype, []<class T>() -> Kernel { return split_heads_apart<T>; });
}

Kernel select_join_heads_apart(const OpShape& shape) {
  const ShapeOf<ops::JoinHeadsApart> s(shape);
  if (!same_type(s, {"q", "k", "v", "x_first", "x_last"})) return nullptr;
  return by_value(s["q"].dtype, []<class T>() -> Kernel { return join_heads_apart<T>; });
}

Kernel select_split_heads(const OpShape& shape) {
  const ShapeOf<ops::SplitHeads> s(shape);
  if (!same_type(s, {"x", "q", "k", "v"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return split_heads<T>; });
}

Kernel select_join_heads(const OpShape& shape) {
  const ShapeOf<ops::JoinHeads> s(shape);
  if (!same_type(s, {"q", "k", "v", "x"})) return nullptr;
  return by_value(s["q"].dtype, []<class T>() -> Kernel { return join_heads<T>; });
}

}  // namespace

std::vector<DeviceOp> heads_ops(const OpChoices&) {
  return {{{ops::SplitHeads::kind, select_split_heads}},
          {{ops::JoinHeads::kind, select_join_heads}},
          {{ops::SplitHeadsApart::kind, select_split_heads_apart}},
          {{ops::JoinHeadsApart::kind, select_join_heads_apart}}};
}

}  // namespace prun::cuda
