// Holds the ops a program may use: the built-in ones, one file each in this folder, and those of op plugins.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "prun/op.hpp"
#include "prun/op_plugin.hpp"

namespace prun {

// Refuses a kernel that lacks a required member.
void check_kernel(const DeviceKernel& kernel, const std::string& origin);

class OpRegistry {
 public:
  // Holds the built-in ops.
  OpRegistry();

  // Adds an op; `origin` names the plugin in messages. A kind that exists already is refused.
  void add(const OpDef& def, const std::string& origin);
  // The op ends with its registry, so a registry that is a temporary is not asked.
  const OpDef& find(std::string_view kind) const&;
  const OpDef& find(std::string_view kind) const&& = delete;
  bool contains(std::string_view kind) const { return ops_.find(kind) != ops_.end(); }
  std::vector<std::string> kinds() const;
  // Says whether ops of that kind replace others if ranks share out sequences (OpDef::across).
  bool looks_across(std::string_view kind) const { return across_.find(kind) != across_.end(); }

 private:
  std::map<std::string, OpDef, std::less<>> ops_;
  std::set<std::string, std::less<>> across_;
};

// Lists the ops that the files of this folder define; it is generated from them.
std::vector<OpDef> builtin_ops();

}  // namespace prun
