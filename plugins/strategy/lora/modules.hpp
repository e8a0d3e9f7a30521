// Finds which weights get adapters: the modules that a model's own library has of them, and those that the
// targets name.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "prun/plugin.hpp"

namespace prun {

// Is a weight, or elements [begin, end) of one of its dimensions.
struct Module {
  std::string name;  // names its parameters within the segment: "qkv.q_proj"
  std::string path;  // such as "model.layers.*.self_attn.q_proj"
  std::string part;  // empty: the whole weight
  std::int64_t begin = 0, end = 0;
};

class Modules {
 public:
  Modules(ProgramRef program, std::vector<std::string> targets);

  // Returns the modules of a weight that the targets name, in the weight's order.
  std::vector<Module> of(Id weight);
  // Throws where a target names no module.
  void check_all_found() const;

 private:
  std::vector<Module> all_of(Id weight) const;
  bool is_asked_for(const Module& module);
  // Says whether the model has a weight of that name, whatever reads it.
  bool is_weight(const std::string& target) const;

  ProgramRef program_;
  std::vector<std::string> targets_;
  std::set<std::string> found_, known_;
};

}  // namespace prun
