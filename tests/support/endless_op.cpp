// Implements, for a GPU, the op that the strategy `spoil` inserts: instead of spoiling a gradient its kernel
// never ends, on the rank that has the sample. tools/maintainer/gpu-faults has a run meet it.
#include "prun/plugin.hpp"
#include "tests/support/endless.hpp"

namespace prun {
namespace {

struct Endless {
  static constexpr const char* kind = "spoil_gradient";
  static constexpr const char* help = "does not end in layer `layer`, where `sample` is among the samples";
  static constexpr OperandDef operands[] = {{"samples"}, {"sum", Access::update}};
  static constexpr AttrDef attrs[] = {int_attr("sample", 0), int_attr("layer", 0)};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) { s.sum(0, 0, 1); }
};

void endless(const KernelArgs& args, const KernelContext& context) {
  const Tensor& samples = args.operands[0];
  if (args.layer == args.attrs[1].i)
    spin_where(samples.as<const std::int64_t>(), samples.elements(), args.attrs[0].i, context.stream);
}

class Plugin final : public OpPlugin {
 public:
  explicit Plugin(const Options&) {}
  std::vector<OpDef> ops() override { return {op_def<Endless>()}; }
  std::vector<DeviceKernel> kernels() override {
    return {{"cuda", {"spoil_gradient", [](const OpShape&) -> Kernel { return endless; }}}};
  }
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(op, prun::Plugin, "endless", "0.1.0", "Has a GPU's kernel never end in one step", "", "");
