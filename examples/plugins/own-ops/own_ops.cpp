// Ops that the core treats as it treats its own, by their traits: a table that tokens are looked up in, a
// head with its gradients in forward and another form for a split vocabulary, exchanges, a conversion. The
// kernels are as plain as can be.
#include <cmath>

#include "prun/plugin.hpp"

namespace {

using namespace prun;

// ---------------------------------------------------------------- a table

struct Rows {
  static constexpr const char* kind = "rows";
  static constexpr const char* help = "rows of a table, picked by number";
  static constexpr OperandDef operands[] = {
      {"numbers"}, {.name = "table", .rows_by = 0}, {"y", Access::write}};
  static void rule(OpShape& s) {
    const Dim* numbers = s.operand[0].dims;
    const Dim dims[] = {numbers[0], numbers[1], s.operand[1].dims[1]};
    s.output(2, s.operand[1].dtype, dims, 3);
    s.sum(1, 0, 1);
  }
  static void gradient(const Gradient& g) { g.weight({1}, "rows_grad", {g.operand(0), g.arrived(2)}); }
};

struct RowsGrad {
  static constexpr const char* kind = "rows_grad";
  static constexpr const char* help = "adds dy into the rows of the table's gradient";
  static constexpr OperandDef operands[] = {{"numbers"}, {"dy"}, {"dtable", Access::update}};
  static constexpr Effect effect = Effect::update;
  static void rule(OpShape& s) { s.sum(1, 0, 2); }
};

// Calls body(row of the table's part, first element of the row in y) for the numbers that this part holds.
template <class Body>
void each_row(const Tensor& numbers, const Tensor& table, Body&& body) {
  for (std::int64_t i = 0; i < numbers.elements(); ++i) {
    const std::int64_t row = numbers.as<const std::int32_t>()[i] - table.start[0];
    if (row >= 0 && row < table.dim[0]) body(row * table.dim[1], i * table.dim[1]);
  }
}

template <class T>
void rows(const KernelArgs& args, const KernelContext&) {
  const Tensor &numbers = args.operands[0], &table = args.operands[1], &y = args.operands[2];
  for (std::int64_t i = 0; i < y.elements(); ++i) y.as<T>()[i] = 0;
  each_row(numbers, table, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t c = 0; c < table.dim[1]; ++c) y.as<T>()[to + c] = table.as<T>()[from + c];
  });
}

template <class T>
void rows_grad(const KernelArgs& args, const KernelContext&) {
  const Tensor &numbers = args.operands[0], &dy = args.operands[1], &dtable = args.operands[2];
  each_row(numbers, dtable, [&](std::int64_t to, std::int64_t from) {
    for (std::int64_t c = 0; c < dtable.dim[1]; ++c) dtable.as<T>()[to + c] += dy.as<T>()[from + c];
  });
}

// ---------------------------------------------------------------- exchanges

constexpr AttrDef axis_attr[] = {int_attr("axis", 0)};

struct TotalOfAll {
  static constexpr const char* kind = "total_of_all";
  static constexpr const char* help = "partial sums of an axis become their sum, in place";
  static constexpr OperandDef operands[] = {{"x", Access::update}};
  static constexpr const AttrDef (&attrs)[1] = axis_attr;
  static constexpr Effect effect = Effect::update;
  static constexpr OpExchange exchange{CommKind::all_reduce};
  static void rule(OpShape& s) { s.pass_partial({0}); }
};

struct LargestOfAll {
  static constexpr const char* kind = "largest_of_all";
  static constexpr const char* help = "the largest that a rank of an axis has";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr const AttrDef (&attrs)[1] = axis_attr;
  static constexpr OpExchange exchange{CommKind::all_reduce, Reduction::max};
  static void rule(OpShape& s) {
    s.like(1, 0);
    s.pass_partial({0});
  }
};

// ---------------------------------------------------------------- a head

struct Head {
  static constexpr const char* kind = "head";
  static constexpr const char* help = "logits, cross-entropy and their gradients";
  static constexpr OperandDef operands[] = {{"x"},
                                            {.name = "weight", .rows_by = 2},
                                            {"targets"},
                                            {"scale"},
                                            {"loss", Access::update},
                                            {"dweight", Access::update, true},
                                            {"dx", Access::write}};
  static constexpr Effect effect = Effect::update;
  static constexpr bool gradient_in_forward = true;
  static void rule(OpShape& s) {
    s.like(6, 0);
    s.sum(0, 0, 2);
    s.whole(1, 0, 2);
  }
  static void gradient(const Gradient& g) {
    g.bind(5, g.accumulator(1));
    g.pass(0, g.operand(6));
  }
  static void split(const OpSplit& s) {
    const Dim& vocab = s.shape().operand[1].dims[0];
    if (s.dim() != vocab.name) return;
    const Id x = s.operand(0), weight = s.operand(1), targets = s.operand(2);
    const auto [max, sum, hit] =
        s.create<3>("lm_head_scan", {x, weight, targets}, {{"vocab", static_cast<double>(vocab.extent)}});
    Id largest = max;
    for (std::int32_t axis : s.axes())
      largest = s.create<1>("largest_of_all", {largest}, {{"axis", static_cast<double>(axis)}})[0];
    const auto [scaled] = s.create<1>("lm_head_rescale", {max, largest, sum});
    const auto [lse] = s.create<1>("lm_head_loss", {largest, scaled, hit, targets, s.operand(4)});
    s.emit("lm_head_grad", {x, weight, targets, lse, s.operand(3), s.operand(5), s.operand(6)});
  }
  static void cost(const OpShape& s, OpCost& c) {
    const Dim* rows = s.operand[0].dims;
    c.flops = 6.0 * static_cast<double>(rows[0].extent * rows[1].extent * s.operand[1].elements());
  }
};

template <class T>
void head(const KernelArgs& args, const KernelContext&) {
  const Tensor &x = args.operands[0], &weight = args.operands[1], &dweight = args.operands[5];
  const std::int64_t vocab = weight.dim[0], width = weight.dim[1];
  const double scale = *args.operands[3].as<double>();
  double& loss = *args.operands[4].as<double>();
  T* logits = static_cast<T*>(args.workspace);
  for (std::int64_t r = 0; r < x.elements() / width; ++r) {
    const std::int32_t target = args.operands[2].as<std::int32_t>()[r];
    const T* row = x.as<T>() + r * width;
    T* dx = args.operands[6].as<T>() + r * width;
    for (std::int64_t c = 0; c < width; ++c) dx[c] = 0;
    if (target < 0) continue;
    double largest = -INFINITY, sum = 0;
    for (std::int64_t v = 0; v < vocab; ++v) {
      logits[v] = 0;
      for (std::int64_t c = 0; c < width; ++c) logits[v] += row[c] * weight.as<T>()[v * width + c];
      largest = std::fmax(largest, static_cast<double>(logits[v]));
    }
    for (std::int64_t v = 0; v < vocab; ++v) sum += std::exp(static_cast<double>(logits[v]) - largest);
    const double lse = largest + std::log(sum);
    loss += lse - static_cast<double>(logits[target]);
    for (std::int64_t v = 0; v < vocab; ++v) {
      const double p = std::exp(static_cast<double>(logits[v]) - lse);
      const T d = static_cast<T>(scale * (p - (v == target ? 1 : 0)));
      for (std::int64_t c = 0; c < width; ++c) {
        dx[c] += d * weight.as<T>()[v * width + c];
        if (dweight.data) dweight.as<T>()[v * width + c] += d * row[c];
      }
    }
  }
}

std::int64_t row_of_logits(const OpShape& s, std::int32_t) {
  return s.operand[1].dims[0].extent * size_of(s.operand[1].dtype);
}

// ---------------------------------------------------------------- a conversion

struct Convert {
  static constexpr const char* kind = "convert";
  static constexpr const char* help = "the same numbers in another type";
  static constexpr OperandDef operands[] = {{"x"}, {"y", Access::write}};
  static constexpr AttrDef attrs[] = {int_attr("to", 1), int_attr("from", 1)};
  static constexpr bool converts = true;
  static void rule(OpShape& s) {
    s.like(1, 0);
    s.operand[1].dtype = static_cast<DType>(s.attrs[0].i);
    s.pass_partial({0});
  }
};

class Plugin final : public OpPlugin {
 public:
  explicit Plugin(const Options&) {}
  std::vector<OpDef> ops() override {
    return {op_def<Rows>(),       op_def<RowsGrad>(),     op_def<Head>(),
            op_def<TotalOfAll>(), op_def<LargestOfAll>(), op_def<Convert>()};
  }
  std::vector<DeviceKernel> kernels() override {
    return {
        {"cpu", {"rows", [](const OpShape& s) { return choose(s, 1, rows<float>, rows<double>); }}},
        {"cpu",
         {"rows_grad", [](const OpShape& s) { return choose(s, 1, rows_grad<float>, rows_grad<double>); }}},
        {"cpu",
         {"head", [](const OpShape& s) { return choose(s, 0, head<float>, head<double>); }, row_of_logits}}};
  }
  std::vector<OpExample> examples() override {
    const Dim batch{"batch", 2}, seq{"seq", 4}, hidden{"hidden", 6}, vocab{"vocab", 10};
    return {OpExample("rows").numbers(0, {batch, seq}, 0, 9).values(1, {vocab, hidden}),
            OpExample("head")
                .values(0, {batch, seq, hidden})
                .values(1, {vocab, hidden})
                .numbers(2, {batch, seq}, -1, 9)
                .scalar(3, 0.25)
                .scalar(4, 0)
                .loss(4, 3)};
  }

 private:
  static Kernel choose(const OpShape& s, int operand, Kernel in_fp32, Kernel in_fp64) {
    const DType type = s.operand[operand].dtype;
    return type == DType::f32 ? in_fp32 : type == DType::f64 ? in_fp64 : nullptr;
  }
};

}  // namespace

PRUN_PLUGIN(op, Plugin, "own-ops", "1.0.0", "Custom ops: an embedding, a head and collectives", "", "");
