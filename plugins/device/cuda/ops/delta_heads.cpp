// Launches what stands around the gated delta rule, the short convolution and gates of outputs.
#include "cuda/delta_heads.hpp"

#include "cuda/output_gate.hpp"
#include "cuda/short_conv.hpp"
#include "device_op.hpp"

namespace prun::cuda {
namespace {

template <class T>
void split_mixed(const KernelArgs& args, const KernelContext& context) {
  const Tensor &x = args.operands[0], &y = args.operands[1];
  cuda::split_mixed(data<const T>(args, 0), data<T>(args, 1), data<T>(args, 2), x.outer(1), y.inner(1),
                    x.inner(1) - y.inner(1), stream_of(context));
}

template <class T>
void join_mixed(const KernelArgs& args, const KernelContext& context) {
  const Tensor &y = args.operands[0], &x = args.operands[2];
  cuda::join_mixed(data<const T>(args, 0), data<const T>(args, 1), data<T>(args, 2), x.outer(1), y.inner(1),
                   x.inner(1) - y.inner(1), stream_of(context));
}

template <class T>
void delta_heads(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[0];
  const std::int64_t key = args.attrs[0].i;
  cuda::delta_heads(data<const T>(args, 0), data<T>(args, 1), data<T>(args, 2), data<T>(args, 3), x.outer(1),
                    key, x.inner(1) - 2 * key, args.attrs[2].f, stream_of(context));
}

template <class T>
void delta_heads_grad(const KernelArgs& args, const KernelContext& context) {
  const Tensor& x = args.operands[3];
  const std::int64_t key = args.attrs[0].i;
  cuda::delta_heads_grad(data<const T>(args, 0), data<const T>(args, 1), data<const T>(args, 2),
                         data<const T>(args, 3), data<T>(args, 4), x.outer(1), key, x.inner(1) - 2 * key,
                         args.attrs[2].f, stream_of(context));
}

// `gate` has a number of each value head of each position, `x` what it was made of.
GateSizes gate_sizes(const KernelArgs& args, int gate, int x) {
  return {args.operands[gate].elements(), args.operands[x + 1].elements(), args.operands[x].inner(1) / 2};
}

template <class T>
void delta_gates(const KernelArgs& args, const KernelContext& context) {
  cuda::delta_gates(gate_sizes(args, 3, 0), data<const T>(args, 0), data<const T>(args, 1),
                    data<const T>(args, 2), data<Compute<T>>(args, 3), data<Compute<T>>(args, 4),
                    stream_of(context));
}

template <class T>
void delta_gates_input_grad(const KernelArgs& args, const KernelContext& context) {
  cuda::delta_gates_input_grad(gate_sizes(args, 0, 2), data<const Compute<T>>(args, 0),
                               data<const Compute<T>>(args, 1), data<const T>(args, 2),
                               data<const T>(args, 3), data<const T>(args, 4), data<T>(args, 5),
                               stream_of(context));
}

template <class T, class S>
void delta_gates_weight_grad(const KernelArgs& args, const KernelContext& context) {
  cuda::delta_gates_weight_grad(gate_sizes(args, 0, 1), data<const Compute<T>>(args, 0),
                                data<const T>(args, 1), data<const T>(args, 2), data<const T>(args, 3),
                                sum_in<S>(args, 4), sum_in<S>(args, 5), stream_of(context));
}

ShortConvSizes conv_sizes(const KernelArgs& args, int x, int weight, int documents) {
  return ShortConvSizes::of(args.operands[x], args.operands[weight],
                            documents < 0 ? nullptr : args.operands + documents);
}

template <class T>
void short_conv(const KernelArgs& args, const KernelContext& context) {
  cuda::short_conv(conv_sizes(args, 0, 1, 4), data<const T>(args, 0), data<const T>(args, 1),
                   data<T>(args, 2), data<T>(args, 3), args.operands[3].dim[1], stream_of(context));
}

template <class T>
void short_conv_at(const KernelArgs& args, const KernelContext& context) {
  cuda::short_conv_at(conv_sizes(args, 0, 1, -1), data<const T>(args, 0), data<const T>(args, 1),
                      data<const double>(args, 2), data<T>(args, 3), data<T>(args, 4), data<T>(args, 5),
                      args.operands[3].dim[1], stream_of(context));
}

template <class T>
void short_conv_input_grad(const KernelArgs& args, const KernelContext& context) {
  cuda::short_conv_input_grad(conv_sizes(args, 1, 2, 3), data<const T>(args, 0), data<const T>(args, 1),
                              data<const T>(args, 2), data<T>(args, 4), stream_of(context));
}

template <class T, class S>
void short_conv_weight_grad(const KernelArgs& args, const KernelContext& context) {
  cuda::short_conv_weight_grad(conv_sizes(args, 1, 2, 3), data<const T>(args, 0), data<const T>(args, 1),
                               data<const T>(args, 2), sum_in<S>(args, 4), stream_of(context));
}

template <class T>
void output_gate(const KernelArgs& args, const KernelContext& context) {
  cuda::output_gate(data<const T>(args, 0), data<const T>(args, 1), data<T>(args, 2),
                    args.operands[0].elements(), args.attrs[0].i != 0, stream_of(context));
}

template <class T>
void output_gate_grad(const KernelArgs& args, const KernelContext& context) {
  cuda::output_gate_grad(data<const T>(args, 0), data<const T>(args, 1), data<const T>(args, 2),
                         data<T>(args, 3), args.operands[0].elements(), args.attrs[0].i != 0,
                         stream_of(context));
}

template <class T>
void split_gate(const KernelArgs& args, const KernelContext& context) {
  const Tensor& y = args.operands[1];
  cuda::split_gate(data<const T>(args, 0), data<T>(args, 1), data<T>(args, 2), y.outer(1), y.inner(1),
                   stream_of(context));
}

template <class T>
void join_gate(const KernelArgs& args, const KernelContext& context) {
  const Tensor& y = args.operands[0];
  cuda::join_gate(data<const T>(args, 0), data<const T>(args, 1), data<T>(args, 2), y.outer(1), y.inner(1),
                  stream_of(context));
}

#define PRUN_SELECT(op, values, statistics, x)                                                      \
  Kernel select_##op(const OpShape& s) {                                                            \
    if (!same_type(s, values) || !computed_type(s, s.operand[x].dtype, statistics)) return nullptr; \
    return by_value(s.operand[x].dtype, []<class T>() -> Kernel { return op<T>; });                 \
  }
#define PRUN_LIST(...) \
  { __VA_ARGS__ }
PRUN_SELECT(split_mixed, PRUN_LIST(0, 1, 2), PRUN_LIST(), 0)
PRUN_SELECT(join_mixed, PRUN_LIST(0, 1, 2), PRUN_LIST(), 0)
PRUN_SELECT(delta_heads, PRUN_LIST(0, 1, 2, 3), PRUN_LIST(), 0)
PRUN_SELECT(delta_heads_grad, PRUN_LIST(0, 1, 2, 3, 4), PRUN_LIST(), 0)
PRUN_SELECT(delta_gates, PRUN_LIST(0, 1, 2), PRUN_LIST(3, 4), 0)
PRUN_SELECT(delta_gates_input_grad, PRUN_LIST(2, 3, 4, 5), PRUN_LIST(0, 1), 2)
PRUN_SELECT(short_conv, PRUN_LIST(0, 1, 2, 3), PRUN_LIST(), 0)
PRUN_SELECT(short_conv_at, PRUN_LIST(0, 1, 3, 4, 5), PRUN_LIST(), 0)
PRUN_SELECT(short_conv_input_grad, PRUN_LIST(0, 1, 2, 4), PRUN_LIST(), 0)
PRUN_SELECT(output_gate, PRUN_LIST(0, 1, 2), PRUN_LIST(), 0)
PRUN_SELECT(output_gate_grad, PRUN_LIST(0, 1, 2, 3), PRUN_LIST(), 0)
PRUN_SELECT(split_gate, PRUN_LIST(0, 1, 2), PRUN_LIST(), 0)
PRUN_SELECT(join_gate, PRUN_LIST(0, 1, 2), PRUN_LIST(), 0)
#undef PRUN_SELECT
#undef PRUN_LIST

Kernel select_delta_gates_weight_grad(const OpShape& s) {
  if (!same_type(s, {1, 2, 3}) || !computed_type(s, s.operand[1].dtype, {0})) return nullptr;
  return by_sum(s, 1, {4, 5}, []<class T, class S>() -> Kernel { return delta_gates_weight_grad<T, S>; });
}

Kernel select_short_conv_weight_grad(const OpShape& s) {
  if (!same_type(s, {0, 1, 2})) return nullptr;
  return by_sum(s, 1, {4}, []<class T, class S>() -> Kernel { return short_conv_weight_grad<T, S>; });
}

}  // namespace

std::vector<DeviceOp> delta_heads_ops(const OpChoices&) {
  return {{{"split_mixed", select_split_mixed}},
          {{"join_mixed", select_join_mixed}},
          {{"delta_heads", select_delta_heads}},
          {{"delta_heads_grad", select_delta_heads_grad}},
          {{"delta_gates", select_delta_gates}},
          {{"delta_gates_input_grad", select_delta_gates_input_grad}},
          {{"delta_gates_weight_grad", select_delta_gates_weight_grad, nullptr, 1u << 4 | 1u << 5}},
          {{"short_conv", select_short_conv}},
          {{"short_conv_at", select_short_conv_at}},
          {{"short_conv_input_grad", select_short_conv_input_grad}},
          {{"short_conv_weight_grad", select_short_conv_weight_grad, nullptr, 1u << 4}},
          {{"output_gate", select_output_gate}},
          {{"output_gate_grad", select_output_gate_grad}},
          {{"split_gate", select_split_gate}},
          {{"join_gate", select_join_gate}}};
}

}  // namespace prun::cuda
