// States what distinguishes the families that this decoder computes: there is one row for each.
#pragma once

#include <cstdint>
#include <string_view>

namespace prun {

// Says how queries and keys are normed: by head, all heads as one row, or by head once they are turned.
enum class HeadNorm : std::uint8_t { absent, each, all, turned };

// Says where a sub-layer's norms are: on its input, on its output, or on both.
enum class NormPlace : std::uint8_t { before, after, around };

// States what a config.json says of layers that see a window only, where it does not list them.
enum class WindowKeys : std::uint8_t {
  absent,
  every,  // sliding_window: all layers
  late,   // use_sliding_window and max_window_layers: layers from one on
  early,  // the same keys: each second layer before one, the first among them
  turns,  // sliding_window_pattern: all but each of such a number, which `full_every` is without it
  fours,  // of four layers all but the first
  listed  // all
};

// States what a config.json says of layers whose positions do not turn.
enum class UnturnedKeys : std::uint8_t {
  absent,
  listed,  // no_rope_layers and no_rope_layer_interval
  full     // layers without a window do not, where sliding_window is a number
};

// States whether a config.json says what bounds scores and logits: of logits alone it may, since its class in
// transformers knows no other, and of both it must, where the class has bounds of its own without.
enum class SoftcapKeys : std::uint8_t { absent, logits, must };

// States how a config.json says how positions turn in layers of two kinds.
enum class RopeKeys : std::uint8_t {
  alike,       // a table for all layers
  local_base,  // rope_local_base_freq has the base of windowed layers, which are not slowed down
  tables       // rope_parameters has a table for each kind
};

// States how a config.json says what experts some layers have, and its files what they are called.
enum class ExpertKeys : std::uint8_t {
  absent,
  mixtral,
  minimax,
  olmoe,
  qwen,
  deepseek2,
  deepseek,
  exaone,
  gpt_oss  // those of a layer are two tensors, with biases
};

// States how files hold the projections of layers with the gated delta rule: one for all but what shares and
// decays are made of, head by head, or one each.
enum class DeltaKeys : std::uint8_t { absent, fused, apart };

// Names the tensors of the norms behind both sub-layers of a block and of those in front of the MLP, beside
// these or without them.
struct NormNames {
  std::string_view behind_attention = "post_attention_layernorm", before_mlp = "pre_feedforward_layernorm",
                   behind_mlp = "post_feedforward_layernorm", before_mlp_alone = "post_attention_layernorm";
};

// Says which projections have biases: those of queries, keys and values, the one behind attention, and those
// of the MLP.
struct Biases {
  bool qkv = false, out = false, mlp = false;
};

struct Family {
  std::string_view option;        // of model.family
  std::string_view model_type;    // that of a config.json
  std::string_view architecture;  // the class of transformers that computes it
  HeadNorm head_norm = HeadNorm::absent;
  std::string_view head_norm_key = {};  // states whether queries and keys are normed; empty: they are
  NormPlace norms = NormPlace::before;
  NormNames norm_names = {};
  WindowKeys windows = WindowKeys::absent;
  std::int64_t full_every = 6;  // of WindowKeys::turns
  bool window_number = false;   // classes of transformers need a window even if no layer has it
  UnturnedKeys unturned = UnturnedKeys::absent;
  Biases biases = {};
  // Keys that state whether there are these biases; empty: files do not. One may state several.
  std::string_view qkv_key = {}, out_key = {}, mlp_key = {};
  bool gain_from_one = false;     // says that norms multiply by 1 + gain
  bool scaled_embedding = false;  // says that it is multiplied by the root of its width
  bool scalar_said = false;       // files state what scores are divided by (query_pre_attn_scalar)
  SoftcapKeys softcaps = SoftcapKeys::absent;
  bool multipliers = false;  // files state factors of embedding, scores, residuals and logits
  std::string_view activation_key = "hidden_act";
  bool gelu = false;        // is used within the MLP's gate, instead of silu
  bool gelu_short = false;  // files that say gelu mean its form by tanh, which is the one here
  RopeKeys rope_keys = RopeKeys::alike;
  double window_base = 0;   // of RopeKeys::local_base and tables, where files do not say it
  bool slowed = true;       // positions may turn slower (rope_scaling)
  bool slowed_by = false;   // files without a table mean positions that turn slower
  bool alpha_base = false;  // `alpha` of a table raises the base
  // Tables may list how much slower each pair turns (longrope), by another list in sequences of more
  // positions than these, where files do not say how many; 0: they may not.
  std::int64_t lists_switch = 0;
  double partial = 0;        // the share of a head that turns where files do not say it; 0: all of it always
  bool neighbours = false;   // are the channels of a pair
  bool growth_said = false;  // tables state how queries grow with the position (llama_4_scaling_beta)
  bool fused_qkv = false;    // queries, keys and values are one tensor in the files
  bool fused_up = false;     // both halves of `up` are
  bool gated_attention = false;  // says that what each query gives has a gate
  bool sinks = false;            // says that each head of queries has a score of no key
  DeltaKeys delta = DeltaKeys::absent;
  ExpertKeys experts = ExpertKeys::absent;
  bool some_without = false;   // files may be of a model without experts
  bool shared_expert = false;  // says that it has a gate of its own
  bool latent = false;         // says that keys and values come out of a latent vector
  bool pairs_said = false;     // says that files state which channels of a latent head make a pair
  bool mtp = false;            // says that files may have modules that predict further tokens
  bool mtp_left_out = false;   // files may have them, and they are not read
  bool mtp_tensors = false;    // the same, where their names begin with "mtp."
  bool all_sparse = false;     // all layers have experts
  bool sparse_listed = false;  // mlp_layer_types lists which layers have experts
  bool normalised = false;     // the weights of chosen experts come to 1 where files do not say it
  // A config.json without these keys means these values.
  double eps = 1e-6, rope_base = 10000;
  bool tied = false;
  std::int64_t heads = 0, vocab = 0;  // 0: files say them
  std::int64_t kv_heads = 0;          // 0: as many as heads
  std::int64_t head_dim = 0;          // 0: hidden / heads
};

inline bool is_deepseek(const Family& family) {
  return family.experts == ExpertKeys::deepseek || family.experts == ExpertKeys::exaone ||
         family.experts == ExpertKeys::deepseek2;
}
// Says that a router has DeepSeek-V3's scores by sigmoid, with biases.
inline bool has_sigmoid(const Family& family) {
  return family.experts != ExpertKeys::deepseek2 &&
         (is_deepseek(family) || family.experts == ExpertKeys::minimax);
}

// Throws where there is no such family.
Family family_of(std::string_view option, const Biases& biases, bool head_norm);
// Reads a model_type, or another name of it.
const Family& family_read(std::string_view model_type);

// Says that the family's config.json has no key for what an option of the model, described as `what`, asks.
[[noreturn]] void throw_no_key(const Family& family, const char* option, const char* what);
// Says the same of a value of that option.
[[noreturn]] void throw_no_key(const Family& family, const char* option);

}  // namespace prun
