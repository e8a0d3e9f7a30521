// Says which layers have experts, and which an MLP.
#pragma once

#include <cstdint>
#include <vector>

#include "family.hpp"
#include "prun/foreign.hpp"

namespace prun {

struct SparseLayers {
  std::int64_t dense_first;         // so many layers in front have an MLP
  std::int64_t every;               // each layer of such a number, counted from 1, has experts
  std::vector<std::int64_t> dense;  // others that have an MLP

  explicit SparseLayers(const Options& options);

  // Says whether some layers are to have an MLP.
  bool some_dense() const { return dense_first > 0 || every != 1 || !dense.empty(); }
  bool has(std::int64_t layer) const;
  void write_config(const Family& family, std::int64_t layers, ConfigWriter& config) const;
};

}  // namespace prun
