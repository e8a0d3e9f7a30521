// lm_head_biased, whole and in the ops of its split form: as lm_head.cpp and lm_head_split.cpp have them,
// with the bias added to each row of logits, and its gradient the sum of the rows of theirs, in order.
#include <algorithm>
#include <vector>

#include "cpu/lm_head_rows.hpp"

namespace prun::cpu::PRUN_ISA {

std::vector<KernelDef> lm_head_biased_kernels();

namespace {

// Where the operands stand that both ops with gradients have.
constexpr int bias_at = 3, dweight_at = 6, dbias_at = 7, dx_at = 8;

template <class T, class C>
void add_bias(C* row, std::int64_t vocab, const T* bias) {
  for (std::int64_t j = 0; j < vocab; ++j) row[j] += static_cast<C>(load(bias[j]));
}

// A chunk whose logits have become gradients.
template <class T, class Sum, class Head>
void add_all(const Head& head, const KernelArgs& args, const KernelContext& context, std::int64_t first,
             std::int64_t rows) {
  const Tensor* o = args.operands;
  if (Sum* const dbias = o[dbias_at].as<Sum>()) {
    const bool begins = args.begins(dbias_at) && first == 0;
    parallel_ranges(*context.workers, head.vocab(), 256, [&](std::int64_t begin, std::int64_t end) {
      if (begins) std::fill(dbias + begin, dbias + end, Sum{});
      for (std::int64_t j = begin; j < end; ++j) {
        Compute<Sum> sum = load(dbias[j]);
        for (std::int64_t r = 0; r < rows; ++r) sum += static_cast<Compute<Sum>>(head.row(r)[j]);
        store(dbias[j], sum);
      }
    });
  }
  head.add_gradients(first, rows, o[dx_at].as<T>(), o[dweight_at].as<Sum>(), args.begins(dweight_at));
}

template <class T, class Sum>
void lm_head_biased(const KernelArgs& args, const KernelContext& context) {
  const Tensor* o = args.operands;
  const LogitRows<T, true> head(o[0], o[1], *context.workers, args.workspace);
  const double scale = *o[4].as<const double>();
  double& loss = *o[5].as<double>();
  head.each_chunk([&](std::int64_t first, std::int64_t rows) {
    const auto* targets = o[2].as<const std::int32_t>() + first;
    parallel(*context.workers, rows, [&](std::int64_t r) {
      add_bias(head.row(r), head.vocab(), o[bias_at].as<const T>());
      head.row_loss(r) = cross_entropy(head.row(r), head.vocab(), targets[r], scale);
    });
    for (std::int64_t r = 0; r < rows; ++r) loss += head.row_loss(r);
    add_all<T, Sum>(head, args, context, first, rows);
  });
}

template <class T>
void lm_head_biased_scan(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor* o = args.operands;
  const LogitRows<T, false> head(o[0], o[1], *context.workers, args.workspace);
  const std::int64_t start = o[1].start[0], whole = args.attrs[0].i;
  head.each_chunk([&](std::int64_t first, std::int64_t rows) {
    parallel(*context.workers, rows, [&](std::int64_t r) {
      C* row = head.row(r);
      const std::int64_t at = first + r;
      const std::int32_t target = o[2].as<const std::int32_t>()[at];
      add_bias(row, head.vocab(), o[bias_at].as<const T>());
      o[6].as<C>()[at] = target_logit(row, head.vocab(), start, target, whole);
      const C largest = row_max(row, head.vocab());
      exp_row(row, head.vocab(), largest);
      o[4].as<C>()[at] = largest;
      o[5].as<C>()[at] = static_cast<C>(row_sum(row, head.vocab()));
    });
  });
}

template <class T, class Sum>
void lm_head_biased_grad(const KernelArgs& args, const KernelContext& context) {
  using C = Compute<T>;
  const Tensor* o = args.operands;
  const LogitRows<T, true> head(o[0], o[1], *context.workers, args.workspace);
  const std::int64_t start = o[1].start[0];
  const double scale = *o[5].as<const double>();
  head.each_chunk([&](std::int64_t first, std::int64_t rows) {
    const auto* targets = o[2].as<const std::int32_t>() + first;
    const C* lse = o[4].as<const C>() + first;
    parallel(*context.workers, rows, [&](std::int64_t r) {
      C* row = head.row(r);
      if (targets[r] < 0) {
        std::fill_n(row, head.vocab(), C{0});
        return;
      }
      add_bias(row, head.vocab(), o[bias_at].as<const T>());
      exp_row(row, head.vocab(), lse[r]);
      scale_row(row, head.vocab(), scale, targets[r] - start, scale);
    });
    add_all<T, Sum>(head, args, context, first, rows);
  });
}

// The types of x, weight, targets and bias, of fp64 numbers, and of gradients that are summed.
bool biased_types(const OpShape& s, int scale) {
  const OperandShape &dweight = s.operand[dweight_at], &dbias = s.operand[dbias_at];
  return head_gradient_types(s, scale, dx_at) && same_type(s, {0, bias_at}) &&
         (!dweight.present || !dbias.present || dweight.dtype == dbias.dtype);
}

const OperandShape& gradient_of(const OpShape& s) {
  return s.operand[s.operand[dweight_at].present ? dweight_at : dbias_at];
}

Kernel select_head(const OpShape& s) {
  if (!biased_types(s, 4) || s.operand[5].dtype != DType::f64) return nullptr;
  return choose_head(s, gradient_of(s),
                     []<class T, class Sum>() -> Kernel { return lm_head_biased<T, Sum>; });
}

Kernel select_scan(const OpShape& s) {
  const DType type = s.operand[0].dtype;
  if (!head_types(s) || !same_type(s, {0, bias_at}) || !same_type(s, {4, 5, 6}) ||
      s.operand[4].dtype != OpShape::statistics(type))
    return nullptr;
  return choose_value(type, []<class T>() -> Kernel { return lm_head_biased_scan<T>; });
}

Kernel select_grad(const OpShape& s) {
  if (!biased_types(s, 5) || s.operand[4].dtype != OpShape::statistics(s.operand[0].dtype)) return nullptr;
  return choose_head(s, gradient_of(s),
                     []<class T, class Sum>() -> Kernel { return lm_head_biased_grad<T, Sum>; });
}

}  // namespace

std::vector<KernelDef> lm_head_biased_kernels() {
  constexpr std::uint32_t sums = 1u << dweight_at | 1u << dbias_at;
  return {{"lm_head_biased", select_head, logit_workspace<true>, sums},
          {"lm_head_biased_scan", select_scan, logit_workspace<false>},
          {"lm_head_biased_grad", select_grad, logit_workspace<true>, sums}};
}

}  // namespace prun::cpu::PRUN_ISA
