#include "sparse_layers.hpp"

#include <algorithm>
#include <cmath>

namespace prun {

SparseLayers::SparseLayers(const Options& options)
    : dense_first(options.integer("dense_first")), every(options.integer("sparse_every")) {
  for (const double layer : options.numbers("dense_layers")) dense.push_back(std::llround(layer));
}

bool SparseLayers::has(std::int64_t layer) const {
  return layer >= dense_first && (layer + 1) % every == 0 &&
         std::find(dense.begin(), dense.end(), layer) == dense.end();
}

void SparseLayers::write_config(const Family& family, std::int64_t layers, ConfigWriter& config) const {
  const bool qwen = family.experts == ExpertKeys::qwen && !family.all_sparse;
  if (dense_first != 0 && !qwen && (!is_deepseek(family) || family.all_sparse))
    throw_no_key(family, "dense_first");
  if (every != 1 && !qwen) throw_no_key(family, "sparse_every");
  if (!dense.empty() && !qwen) throw_no_key(family, "dense_layers");
  if (is_deepseek(family)) config.set("first_k_dense_replace", dense_first);
  if (family.sparse_listed) {
    std::vector<std::string> types;
    for (std::int64_t layer = 0; layer < layers; ++layer) types.emplace_back(has(layer) ? "sparse" : "dense");
    config.set("mlp_layer_types", types);
  }
  if (!qwen) return;
  config.set("decoder_sparse_step", every);
  std::vector<std::int64_t> listed;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    if (!has(layer) && (layer + 1) % every == 0) listed.push_back(layer);
  config.set("mlp_only_layers", listed);
}

}  // namespace prun
