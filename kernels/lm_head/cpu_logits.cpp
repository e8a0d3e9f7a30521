// Implements lm_head_logits: it multiplies one position of each row of a batch by the weight as lm_head does.
#include <algorithm>
#include <vector>

#include "lm_head/cpu_rows.hpp"
#include "prun/ops/lm_head.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

// Returns the last position whose target counts, or -1 where there is none.
std::int64_t position_in(const std::int32_t* targets, std::int64_t seq) {
  std::int64_t at = seq - 1;
  while (at >= 0 && targets[at] < 0) --at;
  return at;
}

template <class T>
void lm_head_logits(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::LmHeadLogits> op(args);
  const Tensor& x = op["x"];
  const std::int64_t batch = x.dim[0], seq = x.dim[1], width = x.dim[2];
  Scratch scratch(args.workspace);
  T* const picked = scratch.take<T>(batch * width);
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t at = position_in(op["targets"].as<const std::int32_t>() + b * seq, seq);
    if (at < 0)
      std::fill_n(picked + b * width, width, T{});
    else
      std::copy_n(x.as<const T>() + (b * seq + at) * width, width, picked + b * width);
  }
  Tensor rows = x;
  rows.data = picked;
  rows.dim[1] = 1;
  const LogitRows<T, false> head(rows, op["weight"], op["bias"], op.real("softcap"), *context.workers,
                                 scratch.take<std::byte>(0));
  head.each_chunk([&](std::int64_t first, std::int64_t count) {
    for (std::int64_t r = 0; r < count; ++r)
      std::copy_n(head.row(r), head.vocab(), op["logits"].as<Compute<T>>() + (first + r) * head.vocab());
  });
}

std::int64_t workspace(const OpShape& shape, std::int32_t threads) {
  OpShape one_each = shape;
  const RuleOf<ops::LmHeadLogits> s(one_each);
  s["x"].dims[1].extent = 1;
  Scratch scratch;
  scratch.take<std::byte>(s["x"].bytes());
  scratch.take<std::byte>(logit_workspace<false, ops::LmHeadLogits>(one_each, threads));
  return scratch.bytes();
}

Kernel select_logits(const OpShape& shape) {
  const ShapeOf<ops::LmHeadLogits> s(shape);
  const DType type = s["x"].dtype;
  if (!head_types(s) || s["logits"].dtype != OpShape::statistics(type)) return nullptr;
  return choose_value(type, []<class T>() -> Kernel { return lm_head_logits<T>; });
}

}  // namespace

std::vector<KernelDef> lm_head_logits_kernels();
std::vector<KernelDef> lm_head_logits_kernels() {
  return {{ops::LmHeadLogits::kind, select_logits, workspace}};
}

}  // namespace prun::cpu::PRUN_ISA
