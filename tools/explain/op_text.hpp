// Describes ops in words, for authors of models and ops.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/arguments.hpp"
#include "ops/registry.hpp"
#include "prun/op_plugin.hpp"

namespace prun {

// ------------------------------------------------------------------- op text

// Holds ops with their origins, and examples of some.
struct DescribedOps {
  struct Origin {
    OpDef op;
    std::string from;  // is "prun" or "op plugin 'squared-relu'"
  };
  std::vector<Origin> ops;
  std::vector<OpExample> examples;

  std::vector<std::shared_ptr<OpPluginInterface>> plugins;  // own the ops

  DescribedOps();  // holds prun's own
  void add(const std::shared_ptr<OpPluginInterface>& plugin, const std::string& name);
};

// Writes one line an op.
std::string list_of_ops(const DescribedOps& ops);

// Describes operands, attributes, traits and, for an example, what the rule marks. It is empty where there is
// no such op.
std::string explain_op(const DescribedOps& ops, std::string_view kind);

// ------------------------------------------------------------------- described ops
// Lists the ops that a command line can name.

// Returns prun's own ops and, for a recipe, those of the op plugins it names.
DescribedOps described_ops(const Arguments& arguments, const std::string& recipe);

}  // namespace prun
