// Implements an op that makes the gradient of one layer infinite in the step that has a certain sample, on
// the rank that has that sample and the gradient's first element.
#include <algorithm>
#include <limits>

#include "prun/plugin.hpp"

namespace prun {
namespace {

struct SpoilGradient {
  static constexpr const char* kind = "spoil_gradient";
  static constexpr const char* help =
      "sum[0] = infinity in layer `layer`, where `sample` is among the samples";
  static constexpr OperandDef operands[] = {{"samples"}, {"sum", Access::update}};
  static constexpr AttrDef attrs[] = {int_attr("sample", 0), int_attr("layer", 0)};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) { s.sum(0, 0, 1); }
};

template <class T>
void spoil_gradient(const KernelArgs& args, const KernelContext&) {
  const Tensor &samples = args.operands[0], &sum = args.operands[1];
  const auto* first = samples.as<const std::int64_t>();
  const auto* const end = first + samples.elements();
  if (args.layer != args.attrs[1].i || std::find(first, end, args.attrs[0].i) == end) return;
  if (std::all_of(sum.start, sum.start + sum.rank, [](std::int64_t start) { return start == 0; }))
    *sum.as<T>() = std::numeric_limits<T>::infinity();
}

class Plugin final : public OpPlugin {
 public:
  explicit Plugin(const Options&) {}
  std::vector<OpDef> ops() override { return {op_def<SpoilGradient>()}; }
  std::vector<DeviceKernel> kernels() override {
    return {{"cpu", {"spoil_gradient", [](const OpShape& s) -> Kernel {
                       return s.operand[1].dtype == DType::f64 ? spoil_gradient<double>
                                                               : spoil_gradient<float>;
                     }}}};
  }
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(op, prun::Plugin, "spoil", "0.1.0", "Makes a gradient infinite in one step", "", "");
