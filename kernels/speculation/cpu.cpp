// Implements begin_speculation, keep_old, settle_update and restore_old.
#include <cstdint>
#include <vector>

#include "cpu/dispatch.hpp"
#include "cpu/isa.hpp"
#include "cpu/past_caches.hpp"
#include "optimizer/cpu_operands.hpp"
#include "prun/ops/speculation.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

void begin_speculation(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::BeginSpeculation> op(args);
  *op["did"].as<double>() = scalar(op["halt"]) == 0 && scalar(op["beyond"]) == 0 ? 1.0 : 0.0;
}

void settle_update(const KernelArgs& args, const KernelContext&) {
  const ArgsOf<ops::SettleUpdate> op(args);
  const bool keep = scalar(op["keep"]) != 0, whole = scalar(op["clip"]) == 1.0;
  double& did = *op["did"].as<double>();
  *op["restore"].as<double>() = did != 0 && !(keep && whole) ? 1.0 : 0.0;
  *op["redo"].as<double>() = keep && !(did != 0 && whole) ? 1.0 : 0.0;
  *op["beyond"].as<double>() = whole ? 0.0 : 1.0;
  did = 0;
}

void copy(const Tensor& from, const Tensor& to, const KernelContext& context) {
  const auto* source = from.as<const std::byte>();
  auto* target = to.as<std::byte>();
  parallel_ranges(*context.workers, from.elements() * size_of(from.dtype), 4096,
                  [&](std::int64_t begin, std::int64_t end) {
                    copy_past_caches(source + begin, target + begin, end - begin);
                    order_copies();
                  });
}

void keep_old(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::KeepOld> op(args);
  if (scalar(op["did"]) != 0) copy(op["x"], op["old"], context);
}

void restore_old(const KernelArgs& args, const KernelContext& context) {
  const ArgsOf<ops::RestoreOld> op(args);
  if (scalar(op["restore"]) != 0) copy(op["old"], op["x"], context);
}

Kernel select_begin_speculation(const OpShape& shape) {
  const ShapeOf<ops::BeginSpeculation> s(shape);
  return all_double(s, {"halt", "beyond", "did"}) ? begin_speculation : nullptr;
}

Kernel select_settle_update(const OpShape& shape) {
  const ShapeOf<ops::SettleUpdate> s(shape);
  return all_double(s, {"keep", "clip", "did", "beyond", "restore", "redo"}) ? settle_update : nullptr;
}

Kernel select_keep_old(const OpShape& shape) {
  const ShapeOf<ops::KeepOld> s(shape);
  return all_double(s, {"did"}) && s["x"].dtype == s["old"].dtype ? keep_old : nullptr;
}

Kernel select_restore_old(const OpShape& shape) {
  const ShapeOf<ops::RestoreOld> s(shape);
  const bool same = s["x"].dtype == s["old"].dtype && s["x"].elements() == s["old"].elements();
  return all_double(s, {"restore"}) && same ? restore_old : nullptr;
}

}  // namespace

std::vector<KernelDef> speculation_kernels();
std::vector<KernelDef> speculation_kernels() {
  return {{ops::BeginSpeculation::kind, select_begin_speculation},
          {ops::KeepOld::kind, select_keep_old},
          {ops::SettleUpdate::kind, select_settle_update},
          {ops::RestoreOld::kind, select_restore_old}};
}

}  // namespace prun::cpu::PRUN_ISA
