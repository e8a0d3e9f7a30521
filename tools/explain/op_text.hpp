// Ops in words, for whoever writes a model or an op.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ops/registry.hpp"
#include "prun/op_plugin.hpp"

namespace prun {

// Ops with whoever brings them, and examples of some.
struct DescribedOps {
  struct Origin {
    OpDef op;
    std::string from;  // "prun", "op plugin 'squared-relu'"
  };
  std::vector<Origin> ops;
  std::vector<OpExample> examples;

  std::vector<std::shared_ptr<OpPluginInterface>> plugins;  // whose they are

  DescribedOps();  // prun's own
  void add(const std::shared_ptr<OpPluginInterface>& plugin, const std::string& name);
};

// One line an op.
std::string list_of_ops(const DescribedOps& ops);

// Operands, attributes, traits and, of an example, what the rule marks. Empty where there is no such op.
std::string explain_op(const DescribedOps& ops, std::string_view kind);

}  // namespace prun
