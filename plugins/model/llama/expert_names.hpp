// Names what the files of a family call a router, the MLP of an expert and the shared one.
#pragma once

#include <string>

#include "family.hpp"

namespace prun {

struct ExpertNames {
  std::string router, expert, gate, up, down, shared;

  static ExpertNames of(const Family& family) {
    if (family.experts == ExpertKeys::mixtral)
      return {
          "block_sparse_moe.gate", "block_sparse_moe.experts.", ".w1.weight", ".w3.weight", ".w2.weight", ""};
    return {"mlp.gate",          "mlp.experts.",
            ".gate_proj.weight", ".up_proj.weight",
            ".down_proj.weight", is_deepseek(family) ? "mlp.shared_experts" : "mlp.shared_expert"};
  }
};

}  // namespace prun
