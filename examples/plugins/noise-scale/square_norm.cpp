// The ops of noise-scale: a squared norm, and a number added to a layer's row of a sum of the step.
#include "prun/plugin.hpp"

namespace {

using namespace prun;

struct SquareNorm {
  static constexpr const char* kind = "square_norm";
  static constexpr const char* help = "y = sum of x^2, in fp64";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static void rule(OpShape& s) {
    s.scalar(1, DType::f64);
    s.sum(0, 0, s.operand[0].rank);
  }
};

struct AddToRow {
  static constexpr const char* kind = "add_to_row";
  static constexpr const char* help = "sums[layer, column] += x";
  static constexpr Effect effect = Effect::update;
  static constexpr OperandDef operands[] = {{"x"}, {"sums", Access::update}};
  static constexpr AttrDef attrs[] = {int_attr("column", 0)};
  static void rule(OpShape&) {}
};

template <class T>
void square_norm(const KernelArgs& args, const KernelContext&) {
  double sum = 0;
  for (std::int64_t i = 0; i < args.operands[0].elements(); ++i) {
    const auto x = static_cast<double>(args.operands[0].as<T>()[i]);
    sum += x * x;
  }
  *args.operands[1].as<double>() = sum;
}

void add_to_row(const KernelArgs& args, const KernelContext&) {
  const Tensor& sums = args.operands[1];
  sums.as<double>()[args.layer * sums.dim[1] + args.attrs[0].i] += *args.operands[0].as<double>();
}

class Plugin final : public OpPlugin {
 public:
  explicit Plugin(const Options&) {}
  std::vector<OpDef> ops() override { return {op_def<SquareNorm>(), op_def<AddToRow>()}; }
  std::vector<DeviceKernel> kernels() override {
    return {{"cpu",
             {SquareNorm::kind,
              [](const OpShape& s) -> Kernel {
                const DType type = s.operand[0].dtype;
                return type == DType::f64   ? square_norm<double>
                       : type == DType::f32 ? square_norm<float>
                                            : nullptr;
              }}},
            {"cpu", {AddToRow::kind, [](const OpShape&) -> Kernel { return add_to_row; }}}};
  }
  std::vector<OpExample> examples() override {
    return {OpExample(SquareNorm::kind).values(0, {{"rows", 8}, {"columns", 16}})};
  }
};

}  // namespace

PRUN_PLUGIN(op, Plugin, "square-norm", "1.0.0", "A squared norm, and rows of sums", "", "");
