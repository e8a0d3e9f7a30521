// Names what the files of a family call a router, the MLP of an expert and the shared one.
#pragma once

#include <string>

#include "family.hpp"

namespace prun {

struct ExpertNames {
  std::string router, expert, gate, up, down, shared, bias;

  static ExpertNames of(const Family& family) {
    if (family.experts == ExpertKeys::mixtral || family.experts == ExpertKeys::minimax)
      return {"block_sparse_moe.gate",
              "block_sparse_moe.experts.",
              ".w1.weight",
              ".w3.weight",
              ".w2.weight",
              "",
              "block_sparse_moe.e_score_correction_bias"};
    return {
        family.experts == ExpertKeys::gpt_oss ? "mlp.router" : "mlp.gate",
        "mlp.experts.",
        ".gate_proj.weight",
        ".up_proj.weight",
        ".down_proj.weight",
        is_deepseek(family) ? "mlp.shared_experts" : "mlp.shared_expert",
        std::string(family.experts == ExpertKeys::exaone ? "mlp" : "mlp.gate") + ".e_score_correction_bias"};
  }
};

// Names the key that counts the shared experts of DeepSeek's and who took over their router.
inline const char* shared_key(const Family& family) {
  return family.experts == ExpertKeys::exaone ? "num_shared_experts" : "n_shared_experts";
}

}  // namespace prun
