#include "convert/torchtitan_models.hpp"

#include <array>
#include <string>

#include "prun/error.hpp"

namespace prun::convert {
namespace {

// Its debugmodel has had several versions.
struct Flavor {
  const char *model, *name;
  int layers, hidden, heads, kv_heads, ffn, vocab;
  double rope_base;
  bool tied = false;
  int experts = 0, choices = 0, expert_ffn = 0;
};
constexpr double turns = 500000, qwen_turns = 1000000;
constexpr int words = 128256, qwen_words = 151936;
constexpr std::array flavors = {
    Flavor{"llama3", "8B", 32, 4096, 32, 8, 14336, words, turns},
    Flavor{"llama3", "70B", 80, 8192, 64, 8, 28672, words, turns},
    Flavor{"llama3", "405B", 126, 16384, 128, 8, 53248, words, turns},
    Flavor{"qwen3", "0.6B", 28, 1024, 16, 8, 3072, qwen_words, qwen_turns, true},
    Flavor{"qwen3", "1.7B", 28, 2048, 16, 8, 6144, qwen_words, qwen_turns, true},
    Flavor{"qwen3", "4B", 36, 2560, 32, 8, 9728, qwen_words, qwen_turns, true},
    Flavor{"qwen3", "8B", 36, 4096, 32, 8, 12288, qwen_words, qwen_turns},
    Flavor{"qwen3", "14B", 40, 5120, 40, 8, 17408, qwen_words, qwen_turns},
    Flavor{"qwen3", "32B", 64, 5120, 64, 8, 25600, qwen_words, qwen_turns},
    Flavor{"qwen3", "30B-A3B", 48, 2048, 32, 4, 6144, qwen_words, qwen_turns, false, 128, 8, 768},
    Flavor{"qwen3", "235B-A22B", 94, 4096, 64, 4, 12288, qwen_words, qwen_turns, false, 128, 8, 1536},
};

// Writes norms on queries and keys, and heads of 128 whatever the width.
void write_qwen(Transfer& transfer, const Flavor& flavor, const std::string& origin) {
  transfer.set_text("model.family", flavor.experts > 0 ? "qwen3_moe" : "qwen3", origin);
  transfer.set("model.head_dim", 128, origin);
  transfer.set("model.norm_eps", 1e-6, origin);
  transfer.set("model.tied", flavor.tied, origin);
  if (flavor.experts == 0) return;
  transfer.set("model.experts", flavor.experts, origin);
  transfer.set("model.choices", flavor.choices, origin);
  transfer.set("model.expert_ffn", flavor.expert_ffn, origin);
  transfer.set("model.router_normalise", true, origin);
  // This is its load_balance_coeff. torchtitan subtracts the mean of all biases' moves, which changes no
  // choice.
  transfer.set("model.router_bias", true, origin);
  transfer.set("model.router_bias_rate", 1e-3, origin);
}

void write_shape(Transfer& transfer, const Flavor& flavor) {
  const std::string origin = detail::concat("torchtitan's ", flavor.model, " ", flavor.name);
  transfer.set("model.layers", flavor.layers, origin);
  transfer.set("model.hidden", flavor.hidden, origin);
  transfer.set("model.heads", flavor.heads, origin);
  transfer.set("model.kv_heads", flavor.kv_heads, origin);
  transfer.set("model.ffn", flavor.ffn, origin);
  transfer.set("model.vocab", flavor.vocab, origin);
  transfer.set("model.rope_base", flavor.rope_base, origin);
  if (std::string_view(flavor.model) == "qwen3") write_qwen(transfer, flavor, origin);
}

const Flavor* flavor_of(const Transfer& transfer) {
  for (const Flavor& known : flavors)
    if (transfer.text("model.name", "llama3") == known.model &&
        transfer.text("model.flavor", "debugmodel") == known.name)
      return &known;
  return nullptr;
}

}  // namespace

void convert_torchtitan_model(Transfer& transfer) {
  const std::string name = transfer.text("model.name", "llama3");
  if (name != "llama3" && name != "llama2" && name != "llama" && name != "qwen3") {
    transfer.refuse("model.name", "the models are gpt and llama with its families; others are plugins");
    transfer.refuse("model.flavor", "a shape of a model that there is not");
    return;
  }
  transfer.carried("model.name");
  transfer.set_text("model.plugin", "llama", "model.name");
  if (const Flavor* const known = flavor_of(transfer)) {
    write_shape(transfer, *known);
    transfer.carried("model.flavor");
    return;
  }
  if (name == "qwen3" && !transfer.knows("model.family"))
    transfer.ask("--set model.family=qwen3", "or qwen3_moe, with its experts");
  transfer.refuse("model.flavor", "the shape is asked for, where its code there has it");
}

// Beside tensor parallelism, experts there are whole unless expert_tensor_parallel_degree says otherwise.
void convert_torchtitan_experts(Transfer& transfer, const Axes& axes) {
  const std::string key = "parallelism.expert_parallel_degree",
                    other = "parallelism.expert_tensor_parallel_degree";
  const std::int64_t ranks = transfer.integer(key, 1), tensor = transfer.integer(other, 1);
  if (const Flavor* const known = flavor_of(transfer); ranks == 1 || (known && known->experts == 0)) {
    transfer.without_effect(key, ranks == 1 ? "as here" : "the model has no experts");
    transfer.without_effect(other, "strategy tensor splits experts as it splits MLPs");
    return;
  }
  if (tensor != 1 && tensor != axes.tensor) {
    transfer.refuse(other, "experts are whole, or split as MLPs are");
    transfer.refuse(key, "experts are whole, or split as MLPs are");
    return;
  }
  carry_experts(transfer, axes, ranks, tensor != axes.tensor, key, other);
}

}  // namespace prun::convert
