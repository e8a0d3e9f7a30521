#include "ops/registry.hpp"

#include "base/text.hpp"

namespace prun {

namespace {

template <class... Parts>
[[noreturn]] void refuse(const std::string& origin, const OpDef& def, const Parts&... parts) {
  throw_error(ErrorCode::bad_input, "op plugin '", origin, "': op '", def.kind, "' ",
              detail::concat(parts...));
}

void check_tables(const OpDef& def, const std::string& origin) {
  for (std::uint64_t i = 0; i < def.operand_count; ++i) {
    const OperandDef& table = def.operands[i];
    if (table.rows_by < 0) continue;
    const auto by = static_cast<std::uint64_t>(table.rows_by);
    if (by >= def.operand_count || by == i || table.optional || def.operands[by].optional)
      refuse(origin, def, "says that operand ", by, " picks rows of '", table.name,
             "'; it must be another one, and neither may be optional");
  }
}

bool has_integer(const OpDef& def, std::string_view name) {
  for (std::uint64_t i = 0; i < def.attr_count; ++i)
    if (def.attrs[i].name == name && !def.attrs[i].real) return true;
  return false;
}

void check_exchange(const OpDef& def, const std::string& origin) {
  if (!def.exchange) return;
  const CommKind kind = def.exchange->kind;
  if (kind != CommKind::all_reduce && kind != CommKind::all_gather && kind != CommKind::reduce_scatter &&
      kind != CommKind::all_to_all && kind != CommKind::send)
    refuse(origin, def, "exchanges by ", name_of(kind),
           "; all_reduce, all_gather, reduce_scatter, all_to_all and send can be");
  const auto accesses = [&](std::uint64_t i, Access access) { return def.operands[i].access == access; };
  const bool in_place = def.operand_count == 1 && accesses(0, Access::update) && kind == CommKind::all_reduce;
  const bool apart = def.operand_count == 2 && accesses(0, Access::read) && accesses(1, Access::write);
  if (!in_place && !apart)
    refuse(origin, def,
           "exchanges, so it reads one operand and writes one, or updates its only one by all_reduce");
  for (const char* const name : {"axis", "dim", "distance", "chunks"})
    if (!has_integer(def, name) && (kind == CommKind::send || name == std::string_view("axis")))
      refuse(origin, def, "exchanges, so it has an integer attribute '", name, "'");
}

}  // namespace

void check_kernel(const DeviceKernel& kernel, const std::string& origin) {
  if (!kernel.device || !kernel.kernel.op || !kernel.kernel.select)
    throw_error(ErrorCode::bad_input, "op plugin '", origin, "': a kernel ",
                kernel.kernel.op ? detail::concat("of op '", kernel.kernel.op, "' ") : std::string(),
                "without ",
                !kernel.device      ? "device"
                : !kernel.kernel.op ? "op"
                                    : "select",
                "; each names its device and its op, and has a function select");
}

OpRegistry::OpRegistry() {
  for (const OpDef& def : builtin_ops()) add(def, "prun");
}

void OpRegistry::add(const OpDef& def, const std::string& origin) {
  if (!def.kind || !def.rule || def.operand_count > max_operands)
    throw_error(ErrorCode::bad_input, "op plugin '", origin,
                "': an op without kind or rule, or with more than ", max_operands, " operands");
  check_tables(def, origin);
  check_exchange(def, origin);
  if (!ops_.emplace(def.kind, def).second)
    throw_error(ErrorCode::bad_input, "op plugin '", origin, "': op '", def.kind,
                "' exists already; rename it");
  if (def.across) across_.insert(def.across);
}

const OpDef& OpRegistry::find(std::string_view kind) const& {
  const auto found = ops_.find(kind);
  if (found == ops_.end())
    throw_error(ErrorCode::not_found, "there is no op '", kind, "'", did_you_mean(kind, kinds()));
  return found->second;
}

std::vector<std::string> OpRegistry::kinds() const {
  std::vector<std::string> names;
  for (const auto& [kind, def] : ops_) names.push_back(kind);
  return names;
}

}  // namespace prun
