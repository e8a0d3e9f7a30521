#include "ops/registry.hpp"

#include "base/text.hpp"

namespace prun {

OpRegistry::OpRegistry() {
  for (const OpDef& def : builtin_ops()) add(def, "prun");
}

void OpRegistry::add(const OpDef& def, const std::string& origin) {
  if (!def.kind || !def.rule || def.operand_count > max_operands)
    throw_error(ErrorCode::bad_input, "plugin '", origin, "': an op without kind or rule, or with more than ",
                max_operands, " operands");
  if (!ops_.emplace(def.kind, def).second)
    throw_error(ErrorCode::bad_input, "plugin '", origin, "': op '", def.kind, "' exists already; rename it");
}

const OpDef& OpRegistry::find(std::string_view kind) const {
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
