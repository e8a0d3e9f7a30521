// Implements experts and its gradients.
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/expert_rows.hpp"
#include "prun/op.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

template <class T>
void experts(const KernelArgs& args, const KernelContext& context) {
  ExpertRows<T> rows(args, context, false);
  rows.each_piece([&] {
    rows.rise();
    rows.keep();
    rows.activate();
    rows.write_results(args.operands[5].as<T>());
  });
}

template <class T>
void experts_grad(const KernelArgs& args, const KernelContext& context) {
  ExpertRows<T> rows(args, context, true);
  rows.each_piece([&] {
    rows.rise_again();
    rows.activate();
    rows.arrive(args.operands[5].as<const T>());
    rows.write_weight_gradients(args.operands[8].as<Compute<T>>());
    rows.turn_back();
    rows.write_input_gradients(args.operands[7].as<T>());
  });
}

// Operand `up` and the one behind it are the sums.
template <class T, class Sum>
void add_gradients(const ExpertRows<T>& rows, const KernelArgs& args, int up) {
  rows.add_parameter_gradients(args.operands[up].as<Sum>(), args.begins(up), args.operands[up + 1].as<Sum>(),
                               args.begins(up + 1));
}

template <class T, class Sum>
void experts_weight_grad(const KernelArgs& args, const KernelContext& context) {
  ExpertRows<T> rows(args, context, true);
  rows.each_piece([&] {
    rows.rise_again();
    rows.activate();
    rows.arrive(args.operands[5].as<const T>());
    rows.turn_back();
    add_gradients<T, Sum>(rows, args, 7);
  });
}

template <class T, class Sum>
void experts_grads(const KernelArgs& args, const KernelContext& context) {
  ExpertRows<T> rows(args, context, true);
  rows.each_piece([&] {
    rows.rise_again();
    rows.activate();
    rows.arrive(args.operands[5].as<const T>());
    rows.write_weight_gradients(args.operands[8].as<Compute<T>>());
    rows.turn_back();
    rows.write_input_gradients(args.operands[7].as<T>());
    add_gradients<T, Sum>(rows, args, 9);
  });
}

// Checks the types of operands that all these ops read; the one at `more` has the values' type as well.
bool operand_types(const OpShape& s, int more) {
  return same_type(s, {0, 3, 4, more}) && (!s.operand[6].present || same_type(s, {0, 6})) &&
         s.operand[1].dtype == DType::i32 && s.operand[2].dtype == OpShape::statistics(s.operand[0].dtype);
}

Kernel select_experts(const OpShape& s) {
  if (!operand_types(s, 5)) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return experts<T>; });
}

Kernel select_grad(const OpShape& s) {
  if (!operand_types(s, 5) || !same_type(s, {0, 7}) || !same_type(s, {2, 8})) return nullptr;
  return choose_value(s.operand[0].dtype, []<class T>() -> Kernel { return experts_grad<T>; });
}

// Chooses by the type of the sums at `up` and behind it, of which either may be absent.
template <class Choice>
Kernel choose_sums(const OpShape& s, int up, Choice choice) {
  const OperandShape &dup = s.operand[up], &ddown = s.operand[up + 1];
  if (dup.present && ddown.present && dup.dtype != ddown.dtype) return nullptr;
  const DType type = s.operand[0].dtype;
  const DType sum = dup.present ? dup.dtype : ddown.present ? ddown.dtype : OpShape::statistics(type);
  return choose_product_sum(type, sum, choice);
}

Kernel select_weight_grad(const OpShape& s) {
  if (!operand_types(s, 5)) return nullptr;
  return choose_sums(s, 7, []<class T, class Sum>() -> Kernel { return experts_weight_grad<T, Sum>; });
}

Kernel select_grads(const OpShape& s) {
  if (!operand_types(s, 5) || !same_type(s, {0, 7}) || !same_type(s, {2, 8})) return nullptr;
  return choose_sums(s, 9, []<class T, class Sum>() -> Kernel { return experts_grads<T, Sum>; });
}

template <bool gradients>
std::int64_t workspace(const OpShape& s, std::int32_t threads) {
  switch (s.operand[0].dtype) {
    case DType::f64: return ExpertRows<double>::workspace_of(s, threads, gradients);
    case DType::bf16: return ExpertRows<bf16>::workspace_of(s, threads, gradients);
    case DType::f16: return ExpertRows<f16>::workspace_of(s, threads, gradients);
    default: return ExpertRows<float>::workspace_of(s, threads, gradients);
  }
}

}  // namespace

std::vector<KernelDef> experts_kernels();
std::vector<KernelDef> experts_kernels() {
  return {{"experts", select_experts, workspace<false>},
          {"experts_grad", select_grad, workspace<true>},
          {"experts_weight_grad", select_weight_grad, workspace<true>, 3u << 7},
          {"experts_grads", select_grads, workspace<true>, 3u << 9}};
}

}  // namespace prun::cpu::PRUN_ISA
