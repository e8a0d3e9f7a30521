// Three tiny kernel lists in place of the real ones: each kernel leaves a trace that a test can check.
#include <stdexcept>
#include <vector>

#include "prun/op.hpp"

namespace prun::cpu {
namespace {

// operand 0, i64: every element becomes layer + its index.
void count_up(const KernelArgs& args, const KernelContext& context) {
  const Tensor& out = args.operands[0];
  parallel(*context.workers, out.elements(),
           [&](std::int64_t i) { out.as<std::int64_t>()[i] = args.layer + i; });
}

// operand 0, i64: the number of workers lent.
void count_workers(const KernelArgs& args, const KernelContext& context) {
  *args.operands[0].as<std::int64_t>() = context.workers->count;
}

// operand 0, i64: x becomes 10 * x + layer, so the order of launches shows.
void append_digit(const KernelArgs& args, const KernelContext&) {
  std::int64_t& x = *args.operands[0].as<std::int64_t>();
  x = 10 * x + args.layer;
}

void fail(const KernelArgs&, const KernelContext&) { throw std::runtime_error("the kernel's own words"); }

template <int Isa>
void name_isa(const KernelArgs& args, const KernelContext&) {
  *args.operands[0].as<std::int64_t>() = Isa;
}

template <Kernel kernel>
KernelDef define(const char* op) {
  return {op, [](const OpShape&) { return kernel; }, nullptr};
}

template <int Isa>
std::vector<KernelDef> list() {
  return {define<count_up>("count_up"), define<count_workers>("count_workers"),
          define<append_digit>("append_digit"), define<fail>("fail"), define<name_isa<Isa>>("name_isa")};
}

}  // namespace

namespace generic {
std::vector<KernelDef> all_kernels();
std::vector<KernelDef> all_kernels() { return list<0>(); }
}  // namespace generic
namespace avx2 {
std::vector<KernelDef> all_kernels();
std::vector<KernelDef> all_kernels() { return list<1>(); }
}  // namespace avx2
namespace avx512 {
std::vector<KernelDef> all_kernels();
std::vector<KernelDef> all_kernels() { return list<2>(); }
}  // namespace avx512

}  // namespace prun::cpu
