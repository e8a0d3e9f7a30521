#include "family.hpp"

#include <algorithm>

#include "prun/status.hpp"

namespace prun {
namespace {

constexpr Family families[] = {{.option = "llama", .model_type = "llama", .architecture = "LlamaForCausalLM"},
                               {.option = "llama",
                                .model_type = "qwen2",
                                .architecture = "Qwen2ForCausalLM",
                                .windows = WindowKeys::late,
                                .qkv_bias = true},
                               {.option = "qwen3",
                                .model_type = "qwen3",
                                .architecture = "Qwen3ForCausalLM",
                                .head_norm = HeadNorm::each,
                                .windows = WindowKeys::late,
                                .kv_heads = 32,
                                .head_dim = 128},
                               {.option = "mistral",
                                .model_type = "mistral",
                                .architecture = "MistralForCausalLM",
                                .windows = WindowKeys::every,
                                .kv_heads = 8},
                               {.option = "gemma3",
                                .model_type = "gemma3_text",
                                .architecture = "Gemma3ForCausalLM",
                                .head_norm = HeadNorm::each,
                                .norms = NormPlace::around,
                                .windows = WindowKeys::turns,
                                .gain_from_one = true,
                                .scaled_embedding = true,
                                .gelu = true,
                                .base_by_kind = true,
                                .rope_base = 1e6,
                                .tied = true,
                                .kv_heads = 4,
                                .head_dim = 256},
                               {.option = "olmo2",
                                .model_type = "olmo2",
                                .architecture = "Olmo2ForCausalLM",
                                .head_norm = HeadNorm::all,
                                .norms = NormPlace::after,
                                .eps = 1e-5},
                               {.option = "phi3",
                                .model_type = "phi3",
                                .architecture = "Phi3ForCausalLM",
                                .windows = WindowKeys::every,
                                .slowed = false,
                                .fused_files = true,
                                .eps = 1e-5},
                               {.option = "mixtral",
                                .model_type = "mixtral",
                                .architecture = "MixtralForCausalLM",
                                .windows = WindowKeys::every,
                                .experts = ExpertKeys::mixtral,
                                .eps = 1e-5,
                                .rope_base = 1e6,
                                .kv_heads = 8},
                               {.option = "olmoe",
                                .model_type = "olmoe",
                                .architecture = "OlmoeForCausalLM",
                                .head_norm = HeadNorm::all,
                                .experts = ExpertKeys::olmoe,
                                .eps = 1e-5},
                               {.option = "qwen2_moe",
                                .model_type = "qwen2_moe",
                                .architecture = "Qwen2MoeForCausalLM",
                                .windows = WindowKeys::early,
                                .qkv_bias = true,
                                .bias_said = true,
                                .experts = ExpertKeys::qwen,
                                .shared_expert = true,
                                .kv_heads = 16},
                               {.option = "qwen3_moe",
                                .model_type = "qwen3_moe",
                                .architecture = "Qwen3MoeForCausalLM",
                                .head_norm = HeadNorm::each,
                                .experts = ExpertKeys::qwen,
                                .kv_heads = 4},
                               {.option = "dots1",
                                .model_type = "dots1",
                                .architecture = "Dots1ForCausalLM",
                                .head_norm = HeadNorm::each,
                                .experts = ExpertKeys::deepseek,
                                .kv_heads = 32},
                               {.option = "deepseek2",
                                .model_type = "deepseek_v2",
                                .architecture = "DeepseekV2ForCausalLM",
                                .experts = ExpertKeys::deepseek2,
                                .latent = true},
                               {.option = "deepseek3",
                                .model_type = "deepseek_v3",
                                .architecture = "DeepseekV3ForCausalLM",
                                .experts = ExpertKeys::deepseek,
                                .latent = true,
                                .pairs_said = true,
                                .mtp = true}};

}  // namespace

Family family_of(std::string_view option, bool qkv_bias) {
  for (Family family : families) {
    if (family.bias_said) family.qkv_bias = qkv_bias;
    if (family.option == option && family.qkv_bias == qkv_bias) return family;
  }
  throw_error(ErrorCode::bad_input, "model.qkv_bias is true, and model.family = \"", option,
              "\" has no biases; leave one of them out");
}

const Family& family_read(std::string_view model_type) {
  for (const Family& family : families)
    if (family.model_type == model_type) return family;
  throw_error(ErrorCode::bad_input, "'model_type' is '", model_type, "', which this model does not compute");
}

void throw_no_key(const Family& family, const char* option, const char* what) {
  throw_error(ErrorCode::unsupported, "a config.json of model_type '", std::string(family.model_type),
              "' has no key for ", what, " (model.", option,
              "); leave it out, or choose another model.family");
}

void throw_no_key(const Family& family, const char* option) {
  throw_error(ErrorCode::unsupported, "a config.json of model_type '", std::string(family.model_type),
              "' has no key for model.", option,
              " as it is set; leave it out, or choose another model.family");
}

}  // namespace prun
