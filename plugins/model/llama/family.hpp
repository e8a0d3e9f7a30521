// States what distinguishes the families that this decoder computes: there is one row for each.
#pragma once

#include <cstdint>
#include <string_view>

namespace prun {

// Says how queries and keys are normed, before they are turned.
enum class HeadNorm : std::uint8_t { absent, each, all };  // normed by head, or all heads as one row

// Says where a sub-layer's norms are: on its input, on its output, or on both.
enum class NormPlace : std::uint8_t { before, after, around };

// States what a config.json says of layers that see a window only, where it does not list them.
enum class WindowKeys : std::uint8_t {
  absent,
  every,  // sliding_window: all layers
  late,   // use_sliding_window and max_window_layers: layers from one on
  early,  // the same keys: each second layer before one, the first among them
  turns   // sliding_window_pattern: all but each sixth, or as many as it says
};

// States how a config.json says what experts some layers have, and its files what they are called.
enum class ExpertKeys : std::uint8_t { absent, mixtral, olmoe, qwen, deepseek2, deepseek };

struct Family {
  std::string_view option;        // of model.family
  std::string_view model_type;    // that of a config.json
  std::string_view architecture;  // the class of transformers that computes it
  HeadNorm head_norm = HeadNorm::absent;
  NormPlace norms = NormPlace::before;
  WindowKeys windows = WindowKeys::absent;
  bool qkv_bias = false;
  bool bias_said = false;         // says that files state whether there are these biases
  bool gain_from_one = false;     // says that norms multiply by 1 + gain
  bool scaled_embedding = false;  // says that it is multiplied by the root of its width
  bool gelu = false;              // is used within the MLP's gate, instead of silu
  bool base_by_kind = false;      // positions of windowed layers turn by a base of their own, and not slower
  bool slowed = true;             // positions may turn slower (rope_scaling)
  bool fused_files = false;       // queries, keys and values are one tensor, and so are both halves of `up`
  ExpertKeys experts = ExpertKeys::absent;
  bool shared_expert = false;  // says that it has a gate of its own
  bool latent = false;         // says that keys and values come out of a latent vector
  bool pairs_said = false;     // says that files state which channels of a latent head make a pair
  bool mtp = false;            // says that files may have modules that predict further tokens
  // A config.json without these keys means these values.
  double eps = 1e-6, rope_base = 10000;
  bool tied = false;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: hidden / heads
};

inline bool is_deepseek(const Family& family) {
  return family.experts == ExpertKeys::deepseek || family.experts == ExpertKeys::deepseek2;
}

// Throws where there is no such family.
Family family_of(std::string_view option, bool qkv_bias);
const Family& family_read(std::string_view model_type);

// Says that the family's config.json has no key for what an option of the model, described as `what`, asks.
[[noreturn]] void throw_no_key(const Family& family, const char* option, const char* what);
// Says the same of a value of that option.
[[noreturn]] void throw_no_key(const Family& family, const char* option);

}  // namespace prun
