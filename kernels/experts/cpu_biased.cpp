// Implements biased_experts and expert_biases with their gradients.
#include <algorithm>
#include <vector>

#include "cpu/dispatch.hpp"
#include "experts/cpu_rows.hpp"
#include "prun/ops/experts.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

template <class T, class Op>
ExpertRows<T> biased_rows(const ArgsOf<Op>& op, const KernelContext& context, bool gradients) {
  using C = Compute<T>;
  return {op, context, gradients, nullptr,
          ExpertGate<T>{.up_bias = op["up_bias"].template as<const T>(),
                        .limit = static_cast<C>(op.real("limit")),
                        .alpha = static_cast<C>(op.real("alpha"))}};
}

template <class T>
void biased_experts(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::BiasedExperts> op(args);
  ExpertRows<T> rows = biased_rows<T>(op, context, false);
  rows.each_piece([&] {
    rows.rise();
    rows.activate();
    rows.write_results(op["y"].as<T>());
  });
}

template <class T>
void biased_experts_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::BiasedExpertsGrad> op(args);
  ExpertRows<T> rows = biased_rows<T>(op, context, true);
  rows.each_piece([&] {
    rows.rise();
    rows.activate();
    rows.arrive(op["dy"].as<const T>());
    rows.write_weight_gradients(op["dweight"].as<Compute<T>>());
    rows.turn_back();
    rows.write_input_gradients(op["dx"].as<T>());
  });
}

template <class T, class Sum>
void biased_experts_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::BiasedExpertsWeightGrad> op(args);
  ExpertRows<T> rows = biased_rows<T>(op, context, true);
  rows.each_piece([&] {
    rows.rise();
    rows.activate();
    rows.arrive(op["dy"].as<const T>());
    rows.turn_back();
    rows.add_parameter_gradients(op["dup"].as<Sum>(), op.begins("dup"), op["ddown"].as<Sum>(),
                                 op.begins("ddown"));
    rows.add_bias_gradients(op["dup_bias"].as<Sum>(), op.begins("dup_bias"));
  });
}

// ---------------------------------------------------------------- biases behind `down`

// Returns the row of a choice's expert, or a number below 0 where another rank has it.
std::int64_t row_of(const Tensor& bias, std::int32_t expert) {
  const std::int64_t row = expert - bias.start[0];
  return row < bias.dim[0] ? row : -1;
}

template <class T>
void expert_biases(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::ExpertBiases> op(args);
  const Tensor &index = op["index"], &bias = op["bias"];
  const std::int64_t choices = index.dim[2], hidden = bias.dim[1];
  const auto* chosen = index.as<const std::int32_t>();
  const C* weight = op["weight"].as<const C>();
  T* const y = op["y"].as<T>();
  parallel_ranges(*context.workers, index.outer(1), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t)
      for (std::int64_t h = 0; h < hidden; ++h) {
        C sum = 0;
        for (std::int64_t c = t * choices; c < (t + 1) * choices; ++c)
          if (const std::int64_t row = row_of(bias, chosen[c]); row >= 0)
            sum += weight[c] * load(bias.as<const T>()[row * hidden + h]);
        store(y[t * hidden + h], sum);
      }
  });
}

template <class T>
void expert_biases_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::ExpertBiasesGrad> op(args);
  const Tensor &index = op["index"], &bias = op["bias"];
  const std::int64_t choices = index.dim[2], hidden = bias.dim[1];
  const auto* chosen = index.as<const std::int32_t>();
  const T* const dy = op["dy"].as<const T>();
  C* const dweight = op["dweight"].as<C>();
  parallel_ranges(*context.workers, index.elements(), 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t c = begin; c < end; ++c) {
      const std::int64_t row = row_of(bias, chosen[c]);
      const T *const from = bias.as<const T>() + row * hidden, *const back = dy + c / choices * hidden;
      dweight[c] =
          row < 0 ? C(0) : lane_sum<C>(hidden, [&](std::int64_t i) { return load(from[i]) * load(back[i]); });
    }
  });
}

// Each thread has some of the columns, and adds the choices in their order.
template <class T, class Sum>
void expert_biases_weight_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const ArgsOf<ops::ExpertBiasesWeightGrad> op(args);
  const Tensor &index = op["index"], &bias = op["bias"];
  const std::int64_t choices = index.dim[2], hidden = bias.dim[1], experts = bias.dim[0];
  const auto* chosen = index.as<const std::int32_t>();
  const C* weight = op["weight"].as<const C>();
  const T* const dy = op["dy"].as<const T>();
  Sum* const dbias = op["dbias"].as<Sum>();
  C* const sums = static_cast<C*>(args.workspace);
  const bool begins = op.begins("dbias");
  parallel_ranges(*context.workers, hidden, 16, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t e = 0; e < experts; ++e)
      std::fill(sums + e * hidden + begin, sums + e * hidden + end, C{});
    for (std::int64_t c = 0; c < index.elements(); ++c) {
      const std::int64_t row = row_of(bias, chosen[c]);
      if (row < 0) continue;
      const T* const back = dy + c / choices * hidden;
      C* const sum = sums + row * hidden;
      const C by = weight[c];
      for (std::int64_t h = begin; h < end; ++h) sum[h] += by * load(back[h]);
    }
    for (std::int64_t e = 0; e < experts; ++e)
      for (std::int64_t i = e * hidden + begin; i < e * hidden + end; ++i)
        store(dbias[i], static_cast<Compute<Sum>>(sums[i]) + (begins ? Compute<Sum>{} : load(dbias[i])));
  });
}

std::int64_t sums_workspace(const OpShape& shape, std::int32_t) {
  const ShapeOf<ops::ExpertBiasesWeightGrad> s(shape);
  return s["bias"].elements() * (s["bias"].dtype == DType::f64 ? 8 : 4);
}

// Checks the types of operands that all these ops read, and of `y` or its gradient.
template <class Op>
bool biased_types(const ShapeOf<Op>& s, OperandOf<Op> y) {
  return same_type(s, {"x", "up", "down", "up_bias", y}) && s["index"].dtype == DType::i32 &&
         s["weight"].dtype == OpShape::statistics(s["x"].dtype);
}
template <class Op>
bool bias_types(const ShapeOf<Op>& s, OperandOf<Op> y) {
  return same_type(s, {"bias", y}) && s["index"].dtype == DType::i32 &&
         s["weight"].dtype == OpShape::statistics(s["bias"].dtype);
}

Kernel select_biased(const OpShape& shape) {
  const ShapeOf<ops::BiasedExperts> s(shape);
  if (!biased_types(s, "y")) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return biased_experts<T>; });
}

Kernel select_biased_grad(const OpShape& shape) {
  const ShapeOf<ops::BiasedExpertsGrad> s(shape);
  if (!biased_types(s, "dy") || !same_type(s, {"x", "dx"}) || !same_type(s, {"weight", "dweight"}))
    return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return biased_experts_grad<T>; });
}

// Chooses by the type of the sums that are present.
Kernel select_biased_weight_grad(const OpShape& shape) {
  using Op = ops::BiasedExpertsWeightGrad;
  const ShapeOf<Op> s(shape);
  if (!biased_types(s, "dy")) return nullptr;
  DType sum = OpShape::statistics(s["x"].dtype);
  for (const auto name : OperandsOf<Op>{"dup", "ddown", "dup_bias"})
    if (s.has(name)) sum = s[name].dtype;
  for (const auto name : OperandsOf<Op>{"dup", "ddown", "dup_bias"})
    if (s.has(name) && s[name].dtype != sum) return nullptr;
  return choose_product_sum(
      s["x"].dtype, sum, []<class T, class Sum>() -> Kernel { return biased_experts_weight_grad<T, Sum>; });
}

Kernel select_biases(const OpShape& shape) {
  const ShapeOf<ops::ExpertBiases> s(shape);
  if (!bias_types(s, "y")) return nullptr;
  return choose_value(s["bias"].dtype, []<class T>() -> Kernel { return expert_biases<T>; });
}

Kernel select_biases_grad(const OpShape& shape) {
  const ShapeOf<ops::ExpertBiasesGrad> s(shape);
  if (!bias_types(s, "dy") || !same_type(s, {"weight", "dweight"})) return nullptr;
  return choose_value(s["bias"].dtype, []<class T>() -> Kernel { return expert_biases_grad<T>; });
}

Kernel select_biases_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::ExpertBiasesWeightGrad> s(shape);
  if (!bias_types(s, "dy")) return nullptr;
  return choose_product_sum(s["bias"].dtype, s["dbias"].dtype,
                            []<class T, class Sum>() -> Kernel { return expert_biases_weight_grad<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> biased_experts_kernels();
std::vector<KernelDef> biased_experts_kernels() {
  using namespace ops;
  return {{BiasedExperts::kind, select_biased, experts_workspace<false, BiasedExperts>},
          {BiasedExpertsGrad::kind, select_biased_grad, experts_workspace<true, BiasedExpertsGrad>},
          {BiasedExpertsWeightGrad::kind, select_biased_weight_grad,
           experts_workspace<true, BiasedExpertsWeightGrad>,
           bits_of<BiasedExpertsWeightGrad>("dup", "ddown", "dup_bias")},
          {ExpertBiases::kind, select_biases},
          {ExpertBiasesGrad::kind, select_biases_grad},
          {ExpertBiasesWeightGrad::kind, select_biases_weight_grad, sums_workspace,
           bits_of<ExpertBiasesWeightGrad>("dbias")}};
}

}  // namespace prun::cpu::PRUN_ISA
