// Implements experts and its gradients.
#include <vector>

#include "cpu/dispatch.hpp"
#include "experts/cpu_rows.hpp"
#include "prun/ops/experts.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

template <class T>
void experts(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::Experts> op(args);
  ExpertRows<T> rows(op, context, false, op["kept"].as<T>());
  rows.each_piece([&] {
    rows.rise();
    rows.keep();
    rows.activate();
    rows.write_results(op["y"].as<T>());
  });
}

template <class T>
void experts_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ExpertsGrad> op(args);
  ExpertRows<T> rows(op, context, true, op["kept"].as<T>());
  rows.each_piece([&] {
    rows.rise_again();
    rows.activate();
    rows.arrive(op["dy"].as<const T>());
    rows.write_weight_gradients(op["dweight"].as<Compute<T>>());
    rows.turn_back();
    rows.write_input_gradients(op["dx"].as<T>());
  });
}

template <class Sum, class T, class Op>
void add_gradients(const ExpertRows<T>& rows, const ArgsOf<Op>& op) {
  rows.add_parameter_gradients(op["dup"].template as<Sum>(), op.begins("dup"), op["ddown"].template as<Sum>(),
                               op.begins("ddown"));
}

template <class T, class Sum>
void experts_weight_grad(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ExpertsWeightGrad> op(args);
  ExpertRows<T> rows(op, context, true, op["kept"].as<T>());
  rows.each_piece([&] {
    rows.rise_again();
    rows.activate();
    rows.arrive(op["dy"].as<const T>());
    rows.turn_back();
    add_gradients<Sum>(rows, op);
  });
}

template <class T, class Sum>
void experts_grads(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::ExpertsGrads> op(args);
  ExpertRows<T> rows(op, context, true, op["kept"].as<T>());
  rows.each_piece([&] {
    rows.rise_again();
    rows.activate();
    rows.arrive(op["dy"].as<const T>());
    rows.write_weight_gradients(op["dweight"].as<Compute<T>>());
    rows.turn_back();
    rows.write_input_gradients(op["dx"].as<T>());
    add_gradients<Sum>(rows, op);
  });
}

// Checks the types of operands that all these ops read; `y`, or its gradient, has the values' type as well.
template <class Op>
bool operand_types(const ShapeOf<Op>& s, OperandOf<Op> y) {
  return same_type(s, {"x", "up", "down", y}) && same_type(s, {"x", "kept"}) &&
         s["index"].dtype == DType::i32 && s["weight"].dtype == OpShape::statistics(s["x"].dtype);
}

Kernel select_experts(const OpShape& shape) {
  const ShapeOf<ops::Experts> s(shape);
  if (!operand_types(s, "y")) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return experts<T>; });
}

template <class Op>
bool input_gradient_types(const ShapeOf<Op>& s) {
  return operand_types(s, "dy") && same_type(s, {"x", "dx"}) && same_type(s, {"weight", "dweight"});
}

Kernel select_grad(const OpShape& shape) {
  const ShapeOf<ops::ExpertsGrad> s(shape);
  if (!input_gradient_types(s)) return nullptr;
  return choose_value(s["x"].dtype, []<class T>() -> Kernel { return experts_grad<T>; });
}

// Chooses by the type of the sums, of which either may be absent.
template <class Op, class Choice>
Kernel choose_sums(const ShapeOf<Op>& s, Choice choice) {
  const OperandShape &dup = s["dup"], &ddown = s["ddown"];
  if (dup.present && ddown.present && dup.dtype != ddown.dtype) return nullptr;
  const DType type = s["x"].dtype;
  const DType sum = dup.present ? dup.dtype : ddown.present ? ddown.dtype : OpShape::statistics(type);
  return choose_product_sum(type, sum, choice);
}

Kernel select_weight_grad(const OpShape& shape) {
  const ShapeOf<ops::ExpertsWeightGrad> s(shape);
  if (!operand_types(s, "dy")) return nullptr;
  return choose_sums(s, []<class T, class Sum>() -> Kernel { return experts_weight_grad<T, Sum>; });
}

Kernel select_grads(const OpShape& shape) {
  const ShapeOf<ops::ExpertsGrads> s(shape);
  if (!input_gradient_types(s)) return nullptr;
  return choose_sums(s, []<class T, class Sum>() -> Kernel { return experts_grads<T, Sum>; });
}

template <class Op>
constexpr std::uint32_t expert_sums = bits_of<Op>("dup", "ddown");

}  // namespace

std::vector<KernelDef> experts_kernels();
std::vector<KernelDef> experts_kernels() {
  using namespace ops;
  return {
      {Experts::kind, select_experts, experts_workspace<false, Experts>},
      {ExpertsGrad::kind, select_grad, experts_workspace<true, ExpertsGrad>},
      {ExpertsWeightGrad::kind, select_weight_grad, experts_workspace<true, ExpertsWeightGrad>,
       expert_sums<ExpertsWeightGrad>},
      {ExpertsGrads::kind, select_grads, experts_workspace<true, ExpertsGrads>, expert_sums<ExpertsGrads>}};
}

}  // namespace prun::cpu::PRUN_ISA
