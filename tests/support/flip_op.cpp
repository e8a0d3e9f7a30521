// Implements an op that flips a bit of a tensor in one step on one rank, as a memory that fails does.
#include <atomic>
#include <cstdlib>
#include <string>

#include "prun/plugin.hpp"

namespace prun {
namespace {

struct FlipBit {
  static constexpr const char* kind = "flip_bit";
  static constexpr const char* help =
      "a bit of x[0], which is in fp32, in layer `layer`, when it runs the `step`-th time on `rank`";
  static constexpr OperandDef operands[] = {{"x", Access::update}};
  static constexpr AttrDef attrs[] = {int_attr("layer", 0), int_attr("step", 1), int_attr("rank", 0)};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape&) {}
};

// Says whether this process is the rank of that number.
bool is_rank(std::int64_t number) {
  const char* const rank = std::getenv("PRUN_RANK");
  return rank && rank == std::to_string(number);
}

void flip_bit(const KernelArgs& args, const KernelContext&) {
  static std::atomic<std::int64_t> steps{0};
  if (args.layer == args.attrs[0].i && ++steps == args.attrs[1].i && is_rank(args.attrs[2].i))
    args.operands[0].as<char>()[2] ^= 1;  // the last bit of all would be rounded away by the next updates
}

class Plugin final : public OpPlugin {
 public:
  explicit Plugin(const Options&) {}
  std::vector<OpDef> ops() override { return {op_def<FlipBit>()}; }
  std::vector<DeviceKernel> kernels() override {
    return {{"cpu", {"flip_bit", [](const OpShape&) -> Kernel { return flip_bit; }}}};
  }
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(op, prun::Plugin, "flip", "0.1.0", "Flips a bit of one rank's", "", "");
