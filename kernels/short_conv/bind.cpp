// Launches the short convolution.
#include "short_conv/cuda.hpp"

#include "device_op.hpp"
#include "prun/ops/short_conv.hpp"

namespace prun::cuda {
namespace {

template <class Op>
ShortConvSizes conv_sizes(const ArgsOf<Op>& op) {
  return ShortConvSizes::of(op["x"], op["weight"], &op["documents"]);
}

template <class T>
void short_conv(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ShortConv> op(args);
  cuda::short_conv(conv_sizes(op), op["x"].as<const T>(), op["weight"].as<const T>(), op["y"].as<T>(),
                   op["tail"].as<T>(), op["tail"].dim[1], stream_of(context));
}

template <class T>
void short_conv_at(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ShortConvAt> op(args);
  cuda::short_conv_at(ShortConvSizes::of(op["x"], op["weight"], nullptr), op["x"].as<const T>(),
                      op["weight"].as<const T>(), op["position"].as<const double>(), op["kept_tail"].as<T>(),
                      op["y"].as<T>(), op["tail"].as<T>(), op["kept_tail"].dim[1], stream_of(context));
}

template <class T>
void short_conv_input_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ShortConvInputGrad> op(args);
  cuda::short_conv_input_grad(conv_sizes(op), op["dy"].as<const T>(), op["x"].as<const T>(),
                              op["weight"].as<const T>(), op["dx"].as<T>(), stream_of(context));
}

template <class T, class S>
void short_conv_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ShortConvWeightGrad> op(args);
  cuda::short_conv_weight_grad(conv_sizes(op), op["dy"].as<const T>(), op["x"].as<const T>(),
                               op["weight"].as<const T>(), sum_in<S>(op, "dweight"), stream_of(context));
}

// Describes runs, which `own` has alone.
template <class Op>
ShortConvSizes runs_in(const ArgsOf<Op>& op, OperandOf<Op> own) {
  return ShortConvSizes::of_runs(op["x"], op["weight"], &op["documents"], op[own], op.integer("rows"),
                                 op.integer("chunks"));
}

template <class T>
void short_conv_runs(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ShortConvRuns> op(args);
  cuda::short_conv<T>(runs_in(op, "y"), op["x"].as<const T>(), op["weight"].as<const T>(), op["y"].as<T>(),
                      nullptr, 0, stream_of(context));
}

template <class T>
void short_conv_runs_input_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ShortConvRunsInputGrad> op(args);
  cuda::short_conv_input_grad(runs_in(op, "dy"), op["dy"].as<const T>(), op["x"].as<const T>(),
                              op["weight"].as<const T>(), op["dx"].as<T>(), stream_of(context));
}

template <class T, class S>
void short_conv_runs_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ShortConvRunsWeightGrad> op(args);
  cuda::short_conv_weight_grad(runs_in(op, "dy"), op["dy"].as<const T>(), op["x"].as<const T>(),
                               op["weight"].as<const T>(), sum_in<S>(op, "dweight"), stream_of(context));
}

Kernel select_short_conv(const OpShape& shape) {
  const ShapeOf<ops::ShortConv> s(shape);
  if (!same_type(s, {"x", "weight", "y", "tail"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return short_conv<T>; });
}

Kernel select_short_conv_at(const OpShape& shape) {
  const ShapeOf<ops::ShortConvAt> s(shape);
  if (!same_type(s, {"x", "weight", "kept_tail", "y", "tail"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return short_conv_at<T>; });
}

Kernel select_short_conv_input_grad(const OpShape& shape) {
  const ShapeOf<ops::ShortConvInputGrad> s(shape);
  if (!same_type(s, {"dy", "x", "weight", "dx"})) return nullptr;
  return by_value(s["dy"].dtype, []<class T>() -> Kernel { return short_conv_input_grad<T>; });
}

Kernel select_short_conv_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::ShortConvWeightGrad> s(shape);
  if (!same_type(s, {"dy", "x", "weight"})) return nullptr;
  return by_sum(s, "x", {"dweight"},
                []<class T, class S>() -> Kernel { return short_conv_weight_grad<T, S>; });
}

// A rank has whole runs.
template <class Op>
bool has_whole_runs(const ShapeOf<Op>& s, OperandOf<Op> own) {
  return s[own].dims[1].extent % s.integer("rows") == 0;
}

Kernel select_conv_runs(const OpShape& shape) {
  const ShapeOf<ops::ShortConvRuns> s(shape);
  if (!same_type(s, {"x", "weight", "y"}) || !has_whole_runs(s, "y")) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return short_conv_runs<T>; });
}

Kernel select_conv_runs_input_grad(const OpShape& shape) {
  const ShapeOf<ops::ShortConvRunsInputGrad> s(shape);
  if (!same_type(s, {"dy", "x", "weight", "dx"}) || !has_whole_runs(s, "dy")) return nullptr;
  return by_value(s["dy"].dtype, []<class T>() -> Kernel { return short_conv_runs_input_grad<T>; });
}

Kernel select_conv_runs_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::ShortConvRunsWeightGrad> s(shape);
  if (!same_type(s, {"dy", "x", "weight"}) || !has_whole_runs(s, "dy")) return nullptr;
  return by_sum(s, "x", {"dweight"},
                []<class T, class S>() -> Kernel { return short_conv_runs_weight_grad<T, S>; });
}

}  // namespace

std::vector<DeviceOp> short_conv_ops(const OpChoices&) {
  return {{{ops::ShortConv::kind, select_short_conv}},
          {{ops::ShortConvAt::kind, select_short_conv_at}},
          {{ops::ShortConvInputGrad::kind, select_short_conv_input_grad}},
          {{ops::ShortConvWeightGrad::kind, select_short_conv_weight_grad, nullptr,
            bits_of<ops::ShortConvWeightGrad>("dweight")}},
          {{ops::ShortConvRuns::kind, select_conv_runs}},
          {{ops::ShortConvRunsInputGrad::kind, select_conv_runs_input_grad}},
          {{ops::ShortConvRunsWeightGrad::kind, select_conv_runs_weight_grad, nullptr,
            bits_of<ops::ShortConvRunsWeightGrad>("dweight")}}};
}

}  // namespace prun::cuda
