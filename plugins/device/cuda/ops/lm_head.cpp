// Launches lm_head whole, and the ops of its form over a split vocabulary.
#include "cuda/lm_head.hpp"

#include "cuda/lm_head_rows.hpp"
#include "device_op.hpp"
#include "libraries.hpp"

namespace prun::cuda {
namespace {

// These operands are the bias of a scan, and of the ops with gradients.
constexpr int scan_bias = 6, grad_bias = 7;

template <class T>
HeadInput<T> input_of(const KernelArgs& args, int bias) {
  return {data<const T>(args, 0), data<const T>(args, 1), data<const std::int32_t>(args, 2),
          data<const T>(args, bias)};
}

// Returns the gradients of an op whose scale is this operand.
template <class T, class S>
HeadGradients<T, S> gradients_of(const KernelArgs& args, int scale) {
  return {data<const double>(args, scale), data<S>(args, 5), args.begins(5), data<T>(args, 6),
          sum_in<S>(args, 8)};
}

template <class T, class S>
HeadShape shape_of(const KernelArgs& args, const HeadInput<T>& input, const HeadGradients<T, S>* gradients) {
  HeadShape shape{};
  shape.rows = args.operands[2].elements();
  shape.width = args.operands[1].dim[1];
  shape.vocab = args.operands[1].dim[0];
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
template <class T, class S>
std::shared_ptr<LogitRows<T, S>> rows_of(const KernelArgs& args, const HeadInput<T>& input,
                                         const HeadGradients<T, S>* gradients, Libraries& libraries,
                                         Stream stream) {
  auto rows = std::make_shared<LogitRows<T, S>>(libraries.gemm(), shape_of(args, input, gradients));
  for (HeadProduct& product :
       rows->products(input, gradients ? *gradients : HeadGradients<T, S>{}, args.workspace))
    libraries.settle(*product.plan, product.operands, stream);
  return rows;
}

// These return what the regularized forms add, by the attributes of each.
HeadRegular none_added(const KernelArgs&) { return {}; }
HeadRegular added_to_loss(const KernelArgs& args) {
  return {args.attrs[0].f, args.attrs[1].f, args.operands[1].dim[0]};
}
HeadRegular added_to_scan(const KernelArgs& args) { return {0, args.attrs[1].f, args.attrs[0].i}; }
HeadRegular added_to_grad(const KernelArgs& args) {
  return {args.attrs[1].f, args.attrs[2].f, args.attrs[0].i};
}
using Added = HeadRegular (*)(const KernelArgs&);

template <Added added>
constexpr auto bind_lm_head =
    []<class T, class S>(const KernelArgs& args, Libraries& libraries, Stream stream) -> Work {
  const HeadInput<T> input = input_of<T>(args, grad_bias);
  const HeadGradients<T, S> gradients = gradients_of<T, S>(args, 3);
  const auto rows = rows_of(args, input, &gradients, libraries, stream);
  return [rows, input, gradients, loss = data<double>(args, 4), workspace = args.workspace,
          by = added(args)](Stream on) { rows->lm_head(input, gradients, loss, workspace, on, by); };
};

template <Added added>
constexpr auto bind_scan = []<class T>(const KernelArgs& args, Libraries& libraries, Stream stream) -> Work {
  const HeadInput<T> input = input_of<T>(args, scan_bias);
  const auto rows = rows_of<T, Compute<T>>(args, input, nullptr, libraries, stream);
  const VocabPart part{args.operands[1].start[0], args.attrs[0].i};
  return [rows, input, part, largest = data<Compute<T>>(args, 3), sum = data<Compute<T>>(args, 4),
          wanted = data<Compute<T>>(args, 5), workspace = args.workspace, by = added(args)](Stream on) {
    rows->lm_head_scan(input, part, largest, sum, wanted, workspace, on, by);
  };
};

template <Added added>
constexpr auto bind_grad =
    []<class T, class S>(const KernelArgs& args, Libraries& libraries, Stream stream) -> Work {
  const HeadInput<T> input = input_of<T>(args, grad_bias);
  const HeadGradients<T, S> gradients = gradients_of<T, S>(args, 4);
  const auto rows = rows_of(args, input, &gradients, libraries, stream);
  return [rows, input, first = args.operands[1].start[0], lse = data<const Compute<T>>(args, 3), gradients,
          workspace = args.workspace, by = added(args)](Stream on) {
    rows->lm_head_grad(input, first, lse, gradients, workspace, on, by);
  };
};

template <class C>
void rescale(const KernelArgs& args, const KernelContext& context) {
  lm_head_rescale(data<const C>(args, 0), data<const C>(args, 1), data<const C>(args, 2), data<C>(args, 3),
                  args.operands[3].elements(), stream_of(context));
}

template <class C>
void regularized_loss(const KernelArgs& args, const KernelContext& context) {
  lm_head_loss(data<const C>(args, 0), data<const C>(args, 1), data<const C>(args, 2),
               data<const std::int32_t>(args, 3), data<double>(args, 4), data<C>(args, 5),
               args.operands[3].elements(), args.workspace, stream_of(context), {args.attrs[0].f, 0, 1});
}

template <class C>
void loss(const KernelArgs& args, const KernelContext& context) {
  lm_head_loss(data<const C>(args, 0), data<const C>(args, 1), data<const C>(args, 2),
               data<const std::int32_t>(args, 3), data<double>(args, 4), data<C>(args, 5),
               args.operands[3].elements(), args.workspace, stream_of(context));
}

template <class C>
void groups(const KernelArgs& args, const KernelContext& context) {
  const std::int64_t count = args.operands[5].dim[1];
  lm_head_groups(data<const C>(args, 0), data<const C>(args, 1), data<const C>(args, 2),
                 data<const std::int32_t>(args, 3), data<const std::int32_t>(args, 4),
                 data<double>(args, 5) + args.layer * count * 2, count, args.operands[3].elements(),
                 stream_of(context), {args.attrs[0].f, 0, 1});
}

template <class T>
void logits(const KernelArgs& args, const KernelContext& context) {
  const std::int64_t* const x = args.operands[0].dim;
  lm_head_logits(data<const T>(args, 0), data<const T>(args, 1), data<const std::int32_t>(args, 2),
                 data<Compute<T>>(args, 3), {x[0], x[1], x[2], args.operands[1].dim[0]}, stream_of(context),
                 data<const T>(args, 4));
}

template <bool gradients, std::int64_t most_bytes>
std::int64_t workspace(const OpShape& s, std::int32_t) {
  HeadShape shape{};
  shape.most_bytes = most_bytes;
  shape.rows = s.operand[2].elements();
  shape.width = s.operand[1].dims[1].extent;
  shape.vocab = s.operand[1].dims[0].extent;
  shape.gradients = gradients;
  shape.dweight = gradients && s.operand[5].present;
  shape.dbias = gradients && s.operand[8].present;
  return by_value(s.operand[0].dtype, [&]<class T>() -> std::int64_t { return lm_head_workspace<T>(shape); });
}

std::int64_t loss_workspace(const OpShape& s, std::int32_t) { return 8 * s.operand[3].elements(); }

// Checks x, weight and targets, with a bias, the scale and the gradients where there are any.
bool head_types(const OpShape& s, int bias) {
  return same_type(s, {0, 1, bias}) && s.operand[2].dtype == DType::i32;
}

Kernel when_bound(const OpShape& s, bool fits, std::initializer_list<int> sums) {
  if (!fits) return nullptr;
  return by_sum(s, 0, sums, []<class T, class S>() -> Kernel { return runs_when_bound; });
}

Kernel select_lm_head(const OpShape& s) {
  return when_bound(s, head_types(s, grad_bias) && same_type(s, {0, 6}) && all_double(s, 3, 5), {5, 8});
}

Kernel select_scan(const OpShape& s) {
  return when_bound(s, head_types(s, scan_bias) && computed_type(s, s.operand[0].dtype, {3, 4, 5}), {});
}

Kernel select_grad(const OpShape& s) {
  const bool fits = head_types(s, grad_bias) && same_type(s, {0, 6}) && all_double(s, 4, 5);
  return when_bound(s, fits && computed_type(s, s.operand[0].dtype, {3}), {5, 8});
}

template <class Choice>
Kernel by_statistics(DType type, Choice choice) {
  if (type == DType::f64) return choice.template operator()<double>();
  return type == DType::f32 ? choice.template operator()<float>() : nullptr;
}

Kernel select_logits(const OpShape& s) {
  if (!head_types(s, 4) || !computed_type(s, s.operand[0].dtype, {3})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return logits<T>; });
}

Kernel select_rescale(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3})) return nullptr;
  return by_statistics(s.operand[0].dtype, []<class C>() -> Kernel { return rescale<C>; });
}

Kernel select_loss(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 5}) || s.operand[3].dtype != DType::i32 || !all_double(s, 4, 5)) return nullptr;
  return by_statistics(s.operand[0].dtype, []<class C>() -> Kernel { return loss<C>; });
}

Kernel select_regularized_loss(const OpShape& s) {
  if (!select_loss(s)) return nullptr;
  return by_statistics(s.operand[0].dtype, []<class C>() -> Kernel { return regularized_loss<C>; });
}

Kernel select_groups(const OpShape& s) {
  if (!same_type(s, {0, 1, 2}) || !same_type(s, {3, 4}) || !all_double(s, 5, 6)) return nullptr;
  return by_statistics(s.operand[0].dtype, []<class C>() -> Kernel { return groups<C>; });
}

}  // namespace

std::vector<DeviceOp> lm_head_ops(const OpChoices& choices) {
  constexpr std::uint32_t head_sums = 1u << 5 | 1u << 8;
  const auto scanned =
                 choices.few_logits ? workspace<false, few_logit_bytes> : workspace<false, most_logit_bytes>,
             whole =
                 choices.few_logits ? workspace<true, few_logit_bytes> : workspace<true, most_logit_bytes>;
  return {{{"lm_head", select_lm_head, whole, head_sums}, bind_typed<bind_lm_head<none_added>, 5, 8>},
          {{"lm_head_regularized", select_lm_head, whole, head_sums},
           bind_typed<bind_lm_head<added_to_loss>, 5, 8>},
          {{"lm_head_regularized_scan", select_scan, scanned}, bind_typed<bind_scan<added_to_scan>>},
          {{"lm_head_regularized_loss", select_regularized_loss, loss_workspace}},
          {{"lm_head_regularized_grad", select_grad, whole, head_sums},
           bind_typed<bind_grad<added_to_grad>, 5, 8>},
          {{"lm_head_scan", select_scan, scanned}, bind_typed<bind_scan<none_added>>},
          {{"lm_head_rescale", select_rescale}},
          {{"lm_head_logits", select_logits}},
          {{"lm_head_groups", select_groups}},
          {{"lm_head_loss", select_loss, loss_workspace}},
          {{"lm_head_grad", select_grad, whole, head_sums}, bind_typed<bind_grad<none_added>, 5, 8>}};
}

}  // namespace prun::cuda
