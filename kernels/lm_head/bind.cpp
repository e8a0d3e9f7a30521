// Launches lm_head whole, and the ops of its form over a split vocabulary.
#include "lm_head/cuda.hpp"

#include "device_op.hpp"
#include "libraries.hpp"
#include "lm_head/cuda_rows.hpp"
#include "prun/ops/lm_head.hpp"

namespace prun::cuda {
namespace {

template <class T, class Op>
HeadInput<T> input_of(const ArgsOf<Op>& op) {
  return {op["x"].template as<const T>(), op["weight"].template as<const T>(),
          op["targets"].template as<const std::int32_t>(), op["bias"].template as<const T>()};
}

template <class T, class S, class Op>
HeadGradients<T, S> gradients_of(const ArgsOf<Op>& op) {
  return {op["scale"].template as<const double>(), op["dweight"].template as<S>(), op.begins("dweight"),
          op["dx"].template as<T>(), sum_in<S, Op>(op, "dbias")};
}

template <class T, class S, class Op>
HeadShape shape_of(const ArgsOf<Op>& op, const HeadInput<T>& input, const HeadGradients<T, S>* gradients) {
  const KernelArgs& args = op;
  HeadShape shape{};
  shape.rows = op["targets"].elements();
  shape.width = op["weight"].dim[1];
  shape.vocab = op["weight"].dim[0];
  shape.gradients = gradients != nullptr;
  shape.dweight = gradients && gradients->dweight;
  shape.bias = input.bias != nullptr;
  shape.dbias = gradients && gradients->dbias.data;
  shape.alignment =
      alignment_of({input.x, input.weight, input.bias, args.workspace,
                    gradients ? gradients->dweight : nullptr, gradients ? gradients->dx : nullptr});
  if (lm_head_workspace<T>(shape) > args.workspace_bytes) shape.most_bytes = few_logit_bytes;
  return shape;
}

// Returns the head's products, with the best algorithms known.
template <class T, class S, class Op>
std::shared_ptr<LogitRows<T, S>> rows_of(const ArgsOf<Op>& op, const HeadInput<T>& input,
                                         const HeadGradients<T, S>* gradients, Libraries& libraries,
                                         Stream stream) {
  const KernelArgs& args = op;
  auto rows = std::make_shared<LogitRows<T, S>>(libraries.gemm(), shape_of(op, input, gradients));
  for (HeadProduct& product :
       rows->products(input, gradients ? *gradients : HeadGradients<T, S>{}, args.workspace))
    libraries.settle(*product.plan, product.operands, stream);
  return rows;
}

// These return what the regularized forms add, and what bounds logits.
template <class Op>
HeadRegular head_added(const ArgsOf<Op>& op) {
  return {.softcap = op.real("softcap")};
}
HeadRegular head_added(const ArgsOf<ops::LmHeadRegularized>& op) {
  return {op.real("z"), op.real("smoothing"), op["weight"].dim[0], op.real("softcap")};
}
HeadRegular head_added(const ArgsOf<ops::LmHeadRegularizedScan>& op) {
  return {0, op.real("smoothing"), op.integer("vocab"), op.real("softcap")};
}
HeadRegular head_added(const ArgsOf<ops::LmHeadRegularizedGrad>& op) {
  return {op.real("z"), op.real("smoothing"), op.integer("vocab"), op.real("softcap")};
}

template <class Op>
constexpr auto bind_lm_head =
    []<class T, class S>(const KernelArgs& args, Libraries& libraries, Stream stream) -> Work {
  const ArgsOf<Op> op(args);
  const HeadInput<T> input = input_of<T>(op);
  const HeadGradients<T, S> gradients = gradients_of<T, S>(op);
  const auto rows = rows_of(op, input, &gradients, libraries, stream);
  return [rows, input, gradients, loss = op["loss"].template as<double>(), workspace = args.workspace,
          by = head_added(op)](Stream on) { rows->lm_head(input, gradients, loss, workspace, on, by); };
};

template <class Op>
constexpr auto bind_scan = []<class T>(const KernelArgs& args, Libraries& libraries, Stream stream) -> Work {
  using C = Compute<T>;
  const ArgsOf<Op> op(args);
  const HeadInput<T> input = input_of<T>(op);
  const auto rows = rows_of<T, C>(op, input, nullptr, libraries, stream);
  const VocabPart part{op["weight"].start[0], op.integer("vocab")};
  return [rows, input, part, largest = op["max"].template as<C>(), sum = op["sum"].template as<C>(),
          wanted = op["hit"].template as<C>(), workspace = args.workspace, by = head_added(op)](Stream on) {
    rows->lm_head_scan(input, part, largest, sum, wanted, workspace, on, by);
  };
};

template <class Op>
constexpr auto bind_grad =
    []<class T, class S>(const KernelArgs& args, Libraries& libraries, Stream stream) -> Work {
  const ArgsOf<Op> op(args);
  const HeadInput<T> input = input_of<T>(op);
  const HeadGradients<T, S> gradients = gradients_of<T, S>(op);
  const auto rows = rows_of(op, input, &gradients, libraries, stream);
  return [rows, input, first = op["weight"].start[0], lse = op["lse"].template as<const Compute<T>>(),
          gradients, workspace = args.workspace, by = head_added(op)](Stream on) {
    rows->lm_head_grad(input, first, lse, gradients, workspace, on, by);
  };
};

template <class C>
void rescale(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LmHeadRescale> op(args);
  lm_head_rescale(op["max"].as<const C>(), op["gmax"].as<const C>(), op["sum"].as<const C>(),
                  op["scaled"].as<C>(), op["scaled"].elements(), stream_of(context));
}

// Returns what lm_head_loss and lm_head_groups add to a row's loss.
template <class Op>
HeadRegular square_added(const ArgsOf<Op>& op) {
  return {op.real("z"), 0, 1};
}
HeadRegular square_added(const ArgsOf<ops::LmHeadLoss>&) { return {}; }

template <class Op, class C>
void loss(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<Op> op(args);
  const Tensor& targets = op["targets"];
  lm_head_loss(op["gmax"].template as<const C>(), op["scaled"].template as<const C>(),
               op["hit"].template as<const C>(), targets.as<const std::int32_t>(),
               op["loss"].template as<double>(), op["lse"].template as<C>(), targets.elements(),
               args.workspace, stream_of(context), square_added(op));
}

template <class C>
void groups(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LmHeadGroups> op(args);
  const Tensor &targets = op["targets"], &sums = op["sums"];
  const std::int64_t count = sums.dim[1];
  lm_head_groups(op["gmax"].as<const C>(), op["scaled"].as<const C>(), op["hit"].as<const C>(),
                 targets.as<const std::int32_t>(), op["groups"].as<const std::int32_t>(),
                 sums.as<double>() + args.layer * count * 2, count, targets.elements(), stream_of(context),
                 square_added(op));
}

template <class T>
void logits(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LmHeadLogits> op(args);
  const Tensor &x = op["x"], &weight = op["weight"];
  lm_head_logits(x.as<const T>(), weight.as<const T>(), op["targets"].as<const std::int32_t>(),
                 op["logits"].as<Compute<T>>(),
                 {x.dim[0], x.dim[1], x.dim[2], weight.dim[0], op.real("softcap")}, stream_of(context),
                 op["bias"].as<const T>());
}

template <class Op>
HeadShape planned_shape(const ShapeOf<Op>& s, std::int64_t most_bytes) {
  HeadShape shape{};
  shape.most_bytes = most_bytes;
  shape.rows = s["targets"].elements();
  shape.width = s["weight"].dims[1].extent;
  shape.vocab = s["weight"].dims[0].extent;
  return shape;
}

std::int64_t bytes_for(const HeadShape& shape, DType type) {
  return by_value(type, [&]<class T>() -> std::int64_t { return lm_head_workspace<T>(shape); });
}

template <class Op, std::int64_t most_bytes>
std::int64_t scan_workspace(const OpShape& all, std::int32_t) {
  const ShapeOf<Op> s(all);
  HeadShape shape = planned_shape(s, most_bytes);
  shape.gradients = shape.dweight = false;
  return bytes_for(shape, s["x"].dtype);
}

template <class Op, std::int64_t most_bytes>
std::int64_t gradient_workspace(const OpShape& all, std::int32_t) {
  const ShapeOf<Op> s(all);
  HeadShape shape = planned_shape(s, most_bytes);
  shape.dweight = s.has("dweight");
  shape.dbias = s.has("dbias");
  return bytes_for(shape, s["x"].dtype);
}

template <class Op>
std::int64_t loss_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<Op> s(shape);
  return 8 * s["targets"].elements();
}

// Checks x, weight and targets, with a bias where there is one.
template <class Op>
bool head_types(const ShapeOf<Op>& s) {
  return same_type(s, {"x", "weight", "bias"}) && s["targets"].dtype == DType::i32;
}

// Does so for an op with gradients.
template <class Op>
Kernel bound_with_gradients(const ShapeOf<Op>& s) {
  if (!head_types(s) || !same_type(s, {"x", "dx"}) || !all_double(s, {"scale"})) return nullptr;
  return by_sum(s, "x", {"dweight", "dbias"}, []<class T, class S>() -> Kernel { return runs_when_bound; });
}

template <class Op>
Kernel select_lm_head(const OpShape& shape) {
  const ShapeOf<Op> s(shape);
  return all_double(s, {"loss"}) ? bound_with_gradients(s) : nullptr;
}

template <class Op>
Kernel select_scan(const OpShape& shape) {
  const ShapeOf<Op> s(shape);
  if (!head_types(s) || !computed_type(s, s["x"].dtype, {"max", "sum", "hit"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return runs_when_bound; });
}

template <class Op>
Kernel select_grad(const OpShape& shape) {
  const ShapeOf<Op> s(shape);
  return computed_type(s, s["x"].dtype, {"lse"}) ? bound_with_gradients(s) : nullptr;
}

template <class Choice>
Kernel by_statistics(DType type, Choice choice) {
  if (type == DType::f64) return choice.template operator()<double>();
  return type == DType::f32 ? choice.template operator()<float>() : nullptr;
}

Kernel select_logits(const OpShape& shape) {
  const ShapeOf<ops::LmHeadLogits> s(shape);
  if (!head_types(s) || !computed_type(s, s["x"].dtype, {"logits"})) return nullptr;
  return by_value(s["x"].dtype, []<class T>() -> Kernel { return logits<T>; });
}

Kernel select_rescale(const OpShape& shape) {
  const ShapeOf<ops::LmHeadRescale> s(shape);
  if (!same_type(s, {"max", "gmax", "sum", "scaled"})) return nullptr;
  return by_statistics(s["max"].dtype, []<class C>() -> Kernel { return rescale<C>; });
}

template <class Op>
Kernel select_loss(const OpShape& shape) {
  const ShapeOf<Op> s(shape);
  if (!same_type(s, {"gmax", "scaled", "hit", "lse"}) || s["targets"].dtype != DType::i32 ||
      !all_double(s, {"loss"}))
    return nullptr;
  return by_statistics(s["gmax"].dtype, []<class C>() -> Kernel { return loss<Op, C>; });
}

Kernel select_groups(const OpShape& shape) {
  const ShapeOf<ops::LmHeadGroups> s(shape);
  if (!same_type(s, {"gmax", "scaled", "hit"}) || !same_type(s, {"targets", "groups"}) ||
      !all_double(s, {"sums"}))
    return nullptr;
  return by_statistics(s["gmax"].dtype, []<class C>() -> Kernel { return groups<C>; });
}

// Is DeviceOp::bind of a head: it calls bind<T, S>(args, libraries, stream) for the types of x and of the
// sums.
template <class Op, auto bind>
Work bind_head(Launches launches, Libraries& libraries, Stream stream) {
  const KernelArgs& args = launches.front().args;
  const OpShape types = types_of(args);
  return by_sum(ShapeOf<Op>(types), "x", {"dweight", "dbias"}, [&]<class T, class S>() -> Work {
    return bind.template operator()<T, S>(args, libraries, stream);
  });
}

template <class Op>
DeviceOp whole_head(bool few) {
  const auto workspace =
      few ? gradient_workspace<Op, few_logit_bytes> : gradient_workspace<Op, most_logit_bytes>;
  return {{Op::kind, select_lm_head<Op>, workspace, bits_of<Op>("dweight", "dbias")},
          bind_head<Op, bind_lm_head<Op>>};
}

template <class Op>
DeviceOp head_scan(bool few) {
  return {{Op::kind, select_scan<Op>,
           few ? scan_workspace<Op, few_logit_bytes> : scan_workspace<Op, most_logit_bytes>},
          bind_typed<bind_scan<Op>>};
}

template <class Op>
DeviceOp head_gradients(bool few) {
  const auto workspace =
      few ? gradient_workspace<Op, few_logit_bytes> : gradient_workspace<Op, most_logit_bytes>;
  return {{Op::kind, select_grad<Op>, workspace, bits_of<Op>("dweight", "dbias")},
          bind_head<Op, bind_grad<Op>>};
}

template <class Op>
DeviceOp head_loss() {
  return {{Op::kind, select_loss<Op>, loss_workspace<Op>}};
}

}  // namespace

std::vector<DeviceOp> lm_head_ops(const OpChoices& choices) {
  const bool few = choices.few_logits;
  return {whole_head<ops::LmHead>(few),
          whole_head<ops::LmHeadRegularized>(few),
          head_scan<ops::LmHeadRegularizedScan>(few),
          head_loss<ops::LmHeadRegularizedLoss>(),
          head_gradients<ops::LmHeadRegularizedGrad>(few),
          head_scan<ops::LmHeadScan>(few),
          {{ops::LmHeadRescale::kind, select_rescale}},
          {{ops::LmHeadLogits::kind, select_logits}},
          {{ops::LmHeadGroups::kind, select_groups}},
          head_loss<ops::LmHeadLoss>(),
          head_gradients<ops::LmHeadGrad>(few)};
}

}  // namespace prun::cuda
