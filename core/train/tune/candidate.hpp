// Describes one way to fill in what a recipe leaves out.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "program/mesh.hpp"

namespace prun {

// Maps an option to its value, as --set takes it.
using ChosenOptions = std::map<std::string, std::string>;

struct Candidate {
  std::vector<Axis> mesh;  // axes in the order in which recipes write them
  std::int64_t global = 1, micro = 1;
  ChosenOptions keys;                  // keys of the core: {"batch.order", "vertical"}
  std::vector<bool> there;             // whether each part of the space is there
  std::vector<ChosenOptions> options;  // options by part of the space

  friend bool operator==(const Candidate&, const Candidate&) = default;
};

inline bool operator==(const Axis& a, const Axis& b) { return a.name == b.name && a.extent == b.extent; }

}  // namespace prun
