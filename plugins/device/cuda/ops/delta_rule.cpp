// Launches the gated delta rule.
#include "cuda/delta_rule.hpp"

#include <algorithm>

#include "device_op.hpp"

namespace prun::cuda {
namespace {

// Describes queries and values by their extents.
template <class Operand, class Extent>
DeltaRuleSizes sizes_of(const Operand& q, const Operand& v, std::int64_t chunk, const Extent& extent) {
  const int last = q.rank - 1;
  const std::int64_t values = extent(v, last - 1) / extent(q, last - 1);
  DeltaRuleSizes sizes{extent(q, 0), extent(q, 1), 1, extent(q, last), values, extent(v, last), 0};
  for (int d = 2; d < last; ++d) sizes.heads *= extent(q, d);
  sizes.chunk = std::min(chunk, sizes.seq);
  return sizes;
}

DeltaRuleSizes sizes_in(const KernelArgs& args, int q) {
  return sizes_of(args.operands[q], args.operands[q + 2], args.attrs[0].i,
                  [](const Tensor& x, int d) { return x.dim[d]; });
}

template <class T>
void delta_rule(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  DeltaRuleForward<T> call{sizes_in(args, 0),      data<const T>(args, 0), data<const T>(args, 1),
                           data<const T>(args, 2), data<const C>(args, 3), data<const C>(args, 4),
                           data<T>(args, 5),       data<C>(args, 6),       args.workspace};
  call.sizes.documents = data<const std::int32_t>(args, 7);
  cuda::delta_rule(call, stream_of(context));
}

template <class T>
void delta_rule_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  DeltaRuleBackward<T> call{sizes_in(args, 1),      data<const T>(args, 0), data<const T>(args, 1),
                            data<const T>(args, 2), data<const T>(args, 3), data<const C>(args, 4),
                            data<const C>(args, 5), data<T>(args, 7),       data<T>(args, 8),
                            data<T>(args, 9),       data<C>(args, 10),      data<C>(args, 11),
                            args.workspace};
  call.sizes.documents = data<const std::int32_t>(args, 6);
  cuda::delta_rule_backward(call, stream_of(context));
}

template <class T>
void delta_rule_at(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  cuda::delta_rule_at<T>({sizes_in(args, 0), data<const T>(args, 0), data<const T>(args, 1),
                          data<const T>(args, 2), data<const C>(args, 3), data<const C>(args, 4),
                          data<const double>(args, 5), data<C>(args, 6), data<T>(args, 7), data<C>(args, 8)},
                         stream_of(context));
}

Kernel select_forward(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 5}) || !computed_type(s, s.operand[0].dtype, {3, 4, 6})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return delta_rule<T>; });
}

Kernel select_backward(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 3, 7, 8, 9}) || !computed_type(s, s.operand[0].dtype, {4, 5, 10, 11}))
    return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return delta_rule_grad<T>; });
}

Kernel select_at(const OpShape& s) {
  if (!same_type(s, {0, 1, 2, 7}) || !computed_type(s, s.operand[0].dtype, {3, 4, 6, 8})) return nullptr;
  return by_value(s.operand[0].dtype, []<class T>() -> Kernel { return delta_rule_at<T>; });
}

DeltaRuleSizes sizes_in(const OpShape& s, int q) {
  return sizes_of(s.operand[q], s.operand[q + 2], s.attrs[0].i,
                  [](const OperandShape& x, int d) { return x.dims[d].extent; });
}

std::int64_t forward_workspace(const OpShape& s, std::int32_t) {
  const DeltaRuleSizes sizes = sizes_in(s, 0);
  return s.operand[0].dtype == DType::f64 ? delta_rule_workspace<double>(sizes)
                                          : delta_rule_workspace<float>(sizes);
}

std::int64_t backward_workspace(const OpShape& s, std::int32_t) {
  const DeltaRuleSizes sizes = sizes_in(s, 1);
  return s.operand[1].dtype == DType::f64 ? delta_rule_backward_workspace<double>(sizes)
                                          : delta_rule_backward_workspace<float>(sizes);
}

}  // namespace

std::vector<DeviceOp> delta_rule_ops(const OpChoices&) {
  return {{{"delta_rule", select_forward, forward_workspace}},
          {{"delta_rule_grad", select_backward, backward_workspace}},
          {{"delta_rule_at", select_at}}};
}

}  // namespace prun::cuda
