#include "llama.hpp"

#include <map>

namespace prun {

// ------------------------------------------------------------------- decoder block

DecoderBlock::DecoderBlock(const Family& family, const Options& options)
    : stream(family, options),
      attention(options),
      latent(options),
      rope(RopeConfig::of(family, options)),
      windows(WindowedLayers::of(options)),
      unturned(UnturnedLayers::of(options)),
      delta(attention.groups.extent, options),
      mlp(options),
      experts(family, options) {
  attention.check(options);
  check_rope();
  experts.check(options.integer("layers"));
  delta.check();
  latent.check(attention.heads, attention.groups.extent, attention.head_dim);
}

void DecoderBlock::check_rope() const {
  const bool yarn = rope.rope.scaling == "yarn";  // its pairs are cut where both are the same, too
  if (rope.rope.low > rope.rope.high || (rope.rope.low == rope.rope.high && !yarn))
    throw_error(ErrorCode::bad_input, "model.rope_low = ", rope.rope.low,
                yarn ? " is above model.rope_high = " : " is not below model.rope_high = ", rope.rope.high);
  const bool placed = windows.from != 0 || windows.full_every != 0 || !windows.full.empty();
  if (windows.window == 0 && (placed || rope.window_base != 0))
    throw_error(ErrorCode::bad_input,
                "cannot apply model.window_from, full_every, full_layers or rope_base_window without a "
                "window; set model.window");
  const std::int64_t head_dim = attention.head_dim.extent, turned = rope.rope.channels;
  if (turned % 2 != 0 || turned > head_dim)
    throw_error(ErrorCode::bad_input, "cannot rotate model.rope_channels = ", turned,
                " channels of a head with model.head_dim = ", head_dim, "; take an even number of them");
  rope.check_lists((turned != 0 ? turned : head_dim) / 2, latent.present());
  if (latent.present() && attention.dropout.probability != 0)
    throw_error(ErrorCode::bad_input,
                "cannot apply model.attention_dropout = ", attention.dropout.probability,
                " with model.latent; leave one of them out");
  if (latent.present() && (turned != 0 || rope.rope.growth != 0))
    throw_error(ErrorCode::bad_input,
                "cannot apply model.rope_channels or rope_growth with model.latent; leave them out");
  if (latent.present() && unturned.any())
    throw_error(ErrorCode::bad_input,
                "cannot apply model.nope_every or nope_layers with model.latent; leave them out");
}

Id DecoderBlock::build(const SegmentPart& s, LayerKind kind, std::int64_t seq, Id x) const {
  const Id attended = build_attention(s, kind, stream.input_of(s, x, "norm1"));
  const Id between = stream.added(s, x, "norm1_after", attended);
  const Id input = stream.input_of(s, between, "norm2");
  return stream.added(s, between, "norm2_after",
                      kind.experts ? experts.build(s, stream.hidden, seq, input)
                                   : mlp.build(s, stream.family, stream.hidden, input));
}

Id DecoderBlock::build_attention(const SegmentPart& s, LayerKind kind, Id x) const {
  if (kind.delta) return delta.build(s, stream, x);
  const double window = kind.windowed ? static_cast<double>(windows.window) : 0;
  if (latent.present())
    return latent.build(s, stream.hidden, attention.groups, attention.head_dim, rope.rope, x, window,
                        attention.softcap);
  const std::optional<Rope> turn = kind.unturned ? std::nullopt : std::optional(rope.of_layer(kind.windowed));
  return attention.build(s, stream, turn, x, window);
}

void DecoderBlock::add_weights(LayerKind kind, const LayerWeights& weights) const {
  const Family& family = stream.family;
  if (kind.delta)
    delta.add_weights(family, weights);
  else if (latent.present())
    latent.add_weights(weights);
  else
    attention.add_weights(family, weights);
  if (kind.experts)
    experts.add_weights(family, weights);
  else
    GatedMlp::add_weights(family, weights);
  stream.add_norms(weights);
  if (!kind.delta) attention.add_head_norms(family, weights);
}

namespace {

// ------------------------------------------------------------------- mtp

std::string name_of_module(std::int64_t k) { return "mtp" + std::to_string(k); }

}  // namespace

MultiTokenPrediction::MultiTokenPrediction(const Options& options)
    : modules_(options.integer("mtp_layers")),
      loss_(options.number("mtp_loss")),
      layers_(options.integer("layers")) {}

// A caller that wants the shapes of weights alone passes a single token.
void MultiTokenPrediction::check(const ModelContext& context) const {
  if (context.seq > 1 && modules_ >= context.seq)
    throw_error(ErrorCode::bad_input, "model.mtp_layers = ", modules_,
                " looks as far ahead as model.seq = ", context.seq, " tokens; take fewer");
}

void MultiTokenPrediction::build(const SegmentPart& head, const DecoderBlock& block, Id made,
                                 const Shared& shared) const {
  if (!any()) return;
  const Id scale =
      head.op("scale", {head.runtime("inv_targets")}, {{"factor", loss_ / static_cast<double>(modules_)}});
  for (std::int64_t k = 1; k <= modules_; ++k) {
    const SegmentPart s(head, name_of_module(k));
    made = build_module(s, block, k, made, shared);
    const Id targets = s.op("ahead", {s.targets()}, {{"by", static_cast<double>(k)}, {"otherwise", -1.0}});
    s.op("lm_head", {made, shared.head, targets, scale, s.tally("loss", {{"per_target", 1}})});
  }
}

// Returns the head's input, which is also that of the next module.
Id MultiTokenPrediction::build_module(const SegmentPart& s, const DecoderBlock& block, std::int64_t k,
                                      Id made, const Shared& shared) const {
  const ResidualStream& stream = block.stream;
  const Dim both{"hidden_pair", 2 * stream.hidden.extent};
  const Id tokens = s.op("ahead", {s.tokens()}, {{"by", static_cast<double>(k)}});
  const Id token = stream.norm(s, stream.embedded(s, tokens, shared.tokens), "norm_token");
  const Id pair = s.op("pair", {token, stream.norm(s, made, "norm_made")});
  const Id weight = s.matrix(s.weight("joined.weight", {stream.hidden, both}), {.columns = 1});
  const Id joined = s.op("linear", {pair, weight, none});
  return stream.norm(s, block.build(s, block.kind_of(layer_of(k)), shared.seq, joined), "norm");
}

void MultiTokenPrediction::write_config(const Family& family, ConfigWriter& config) const {
  if (any() && !family.mtp) throw_no_key(family, "mtp_layers", "modules that predict further tokens");
  if (any()) config.set("num_nextn_predict_layers", modules_);
}

void MultiTokenPrediction::add_weights(const DecoderBlock& block, ForeignWeights& weights) const {
  for (std::int64_t k = 1; k <= modules_; ++k) {
    const std::int64_t layer = layer_of(k);
    const LayerWeights module(weights, "head." + name_of_module(k), layer);
    module.add("norm_token.gain", "enorm.weight");
    module.add("norm_made.gain", "hnorm.weight");
    module.add("joined.weight", "eh_proj.weight");
    module.add("norm.gain", "shared_head.norm.weight");
    block.add_weights(block.kind_of(layer), module);
    // These are the model's own tensors, once more.
    for (const char* shared :
         {".embed_tokens.weight=model.embed_tokens.weight", ".shared_head.head.weight=lm_head.weight"})
      weights.ignored.push_back("model.layers." + std::to_string(layer) + shared);
  }
}

}  // namespace prun

// ------------------------------------------------------------------- llama

namespace prun {

Llama::Llama(const Options& options)
    : family_(family_of(options.text("family"),
                        {options.flag("qkv_bias"), options.flag("out_bias"), options.flag("mlp_bias")},
                        options.flag("head_norm"))),
      layers_(options.integer("layers")),
      vocab_{"vocab", options.integer("vocab")},
      positions_(options.integer("positions")),
      tied_(options.flag("tied")),
      logit_divisor_(options.number("logit_divisor")),
      logit_softcap_(options.number("logit_softcap")),
      deviation_(options.number("init_std")),
      block_(family_, options),
      mtp_(options) {
  if (mtp_.any() && logit_divisor_ != 1)
    throw_error(ErrorCode::bad_input, "model.logit_divisor = ", logit_divisor_,
                " is of models without model.mtp_layers; leave one of them out");
  if (mtp_.any() && block_.attention.dropout.probability != 0)
    throw_error(ErrorCode::bad_input, "model.attention_dropout = ", block_.attention.dropout.probability,
                " is of models without model.mtp_layers; leave one of them out");
  if (mtp_.any() && logit_softcap_ != 0)
    throw_error(ErrorCode::bad_input, "model.logit_softcap = ", logit_softcap_,
                " is of models without model.mtp_layers; leave one of them out");
}

std::vector<LayerRun> Llama::runs() const {
  std::vector<LayerRun> runs;
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    const LayerKind kind = block_.kind_of(layer);
    if (runs.empty() || runs.back().kind != kind)
      runs.push_back({"block" + std::to_string(layer), layer, 0, kind});
    ++runs.back().count;
  }
  if (runs.size() == 1) runs.front().segment = "block";
  return runs;
}

void Llama::build(const ModelContext& context, ProgramRef program) {
  mtp_.check(context);
  block_.rope.check_length(context.seq, positions_);
  block_.rope.rope.seq = context.seq;
  const SegmentPart embedding(program.segment("embedding"), deviation_);
  const Id table = embedding.weight("token", {vocab_, block_.stream.hidden});
  embedding.outgoing(block_.stream.embedded(embedding, embedding.tokens(), table));
  for (const LayerRun& run : runs()) {
    const SegmentPart s(program.segment(run.segment, run.count), deviation_);
    s.outgoing(block_.build(s, run.kind, context.seq, s.incoming()));
  }
  build_head({program.segment("head"), deviation_}, table, context.seq);
}

void Llama::build_head(const SegmentPart& s, Id table, std::int64_t seq) const {
  const Id normed = block_.stream.norm(s, s.incoming(), "norm");
  const Id x = logit_divisor_ == 1 ? normed : s.op("scale", {normed}, {{"factor", 1 / logit_divisor_}});
  const Id weight = tied_ ? s.tie(table) : s.weight("weight", {vocab_, block_.stream.hidden});
  s.op("lm_head", {x, weight, s.targets(), s.runtime("inv_targets"), s.runtime("loss_sum")},
       {{"softcap", logit_softcap_}});
  mtp_.build(s, block_, x, {table, weight, seq});
}

}  // namespace prun

PRUN_PLUGIN(
    model, prun::Llama, "llama", "0.1.0",
    "Llama 3, Qwen2 and Qwen3, Mistral, Gemma 1 to 3, OLMo 2 and 3, Phi-3, Granite, SmolLM3, EXAONE 4, Hunyuan, "
    "Seed-OSS, InternLM3, ERNIE 4.5, GLM-4, with experts Mixtral, OLMoE, Qwen's, dots.llm1, DeepSeek-V2 and "
    "V3, GLM-4.5, GLM-4.7-Flash, MiniMax-M2, gpt-oss, with the gated delta rule Qwen3-Next and 3.5: "
    "rotary positions, RMSNorm, a gated MLP, GQA",
    "reads=llama,qwen2,qwen3,mistral,ministral,cwm,seed_oss,internlm3,iquestcoder,smollm3,granite,"
    "hunyuan_v1_dense,exaone4,gemma,gemma2,vaultgemma,gemma3_text,olmo2,olmo3,phi3,mixtral,olmoe,flex_olmo,qwen2_moe,"
    "qwen3_moe,dots1,solar_open,exaone_moe,deepseek_v2,deepseek_v3,kimi_k2,glm4_moe_lite,sarvam_mla,youtu,"
    "ministral3,ernie4_5,glm,glm4,glm4_moe,minimax_m2,gpt_oss,qwen3_next,qwen3_5_text,qwen3_5_moe_text; switches=rope_switch; "
    "also=llama2,llama3,qwen,qwen2,qwen3,mistral,ministral,cwm,seed,internlm,smollm,smollm3,granite,"
    "hunyuan,exaone,exaone4,gemma,gemma2,vaultgemma,gemma3,olmo,olmo2,olmo3,phi,phi3,mixtral,olmoe,flex_olmo,qwen2_moe,"
    "qwen3_moe,dots1,solar,deepseek,deepseek2,deepseek3,kimi,glm,glm4,sarvam,youtu,"
    "ministral3,ernie,minimax,gpt_oss,gpt-oss,qwen3_next,qwen3_5",
    "layers    | int   | 32     | 1..100000   | Number of transformer blocks\n"
    "hidden    | int   | 4096   | 1..1048576  | Hidden size, the width of the residual stream\n"
    "heads     | int   | 32     | 1..65536    | Query heads\n"
    "kv_heads  | int   | 0      | 0..65536    | Key and value heads (GQA); must divide heads; 0: as many as "
    "heads\n"
    "head_dim  | int   | 0      | 0..1024     | Channels of a head; 0: hidden / heads\n"
    "ffn       | int   | 14336  | 1..4194304  | Width of the MLP\n"
    "vocab     | int   | 128256 | 2..16777216 | Vocabulary size\n"
    "tied      | bool  | false  |             | Share the embedding table with the head (tied weights)\n"
    "init_std  | float | 0.02   | 0..1000     | Standard deviation of the normal distribution of initial "
    "weights\n"
    "family    | choice | llama | "
    "llama,qwen3,mistral,ministral,cwm,seed_oss,internlm3,iquestcoder,smollm3,granite,hunyuan,exaone4,"
    "gemma,gemma2,vaultgemma,gemma3,olmo2,olmo3,phi3,mixtral,olmoe,flex_olmo,qwen2_moe,qwen3_moe,dots1,solar_open,exaone_moe,"
    "deepseek2,deepseek3,glm4_moe_lite,sarvam_mla,youtu,ministral3,ernie4_5,glm,glm4,glm4_moe,minimax_m2,gpt_oss,"
    "qwen3_next,qwen3_5,qwen3_5_moe | "
    "Model family: the placement of norms, the MLP's activation, and the files of an export\n"
    "qkv_bias  | bool  | false  |             | Add biases to the query, key and value projections (Qwen2)\n"
    "out_bias  | bool  | false  |             | Add a bias to attention's output projection\n"
    "mlp_bias  | bool  | false  |             | Add biases to the projections of the MLP\n"
    "head_norm | bool  | true   |             | Normalize queries and keys (QK norm), in families whose "
    "config says whether (GLM-4.5)\n"
    "window    | int   | 0      | 0..1000000000 | Sliding-window attention: number of positions that a "
    "position attends to, itself included; 0: all before it\n"
    "window_from | int | 0      | 0..100000   | First layer with the window, counted from 0; layers before "
    "it attend to all positions\n"
    "full_every | int  | 0      | 0..100000   | Every n-th layer has full attention instead of the window "
    "(Gemma 3: 6); 0: none\n"
    "full_layers | ints | []    | 0..100000   | Further layers with full attention, counted from 0\n"
    "nope_every | int  | 0      | 0..100000   | Every n-th layer has no rotary embedding, or NoPE (SmolLM3: "
    "4); 0: all layers have one\n"
    "nope_layers | ints | []    | 0..100000   | Further layers without rotary embedding, counted from 0\n"
    "rope_base | float | 500000 | 1..1e12     | Base of the rotary frequencies (rope_theta)\n"
    "rope_base_window | float | 0 | 0..1e12   | Base of the rotary frequencies of layers with the window, to "
    "which rope_factor does not apply (Gemma 3); 0: as in other layers\n"
    "rope_scaling | choice | llama3 | llama3,linear,yarn,dynamic | Which channel pairs rope_factor slows "
    "down: llama3: by their rotations in rope_original; linear: all; yarn: by their index between those of "
    "rope_high and rope_low; dynamic: none up to model.positions\n"
    "rope_factor | float | 1    | 1..1e6      | Context extension: factor by which low rotary frequencies "
    "are divided (Llama 3.1); 1: none\n"
    "rope_low  | float | 1      | 0..1e6      | Pairs that rotate fewer times than this in rope_original "
    "positions are slowed down by all of rope_factor (low_freq_factor, YaRN's beta_slow)\n"
    "rope_high | float | 4      | 0..1e6      | Pairs that rotate more often than this in rope_original "
    "positions are not slowed down (high_freq_factor, YaRN's beta_fast)\n"
    "rope_original | float | 8192 | 1..1e9    | Sequence length of pretraining "
    "(original_max_position_embeddings)\n"
    "rope_attention | float | 1 | 0..1e6      | Factor on queries and keys if rope_factor is not 1 (YaRN's "
    "attention_factor)\n"
    "rope_mscale | float | 0    | 0..1e6      | With latent attention: multiply scores by the square of 1 + "
    "0.1 rope_mscale ln(rope_factor) (DeepSeek's YaRN)\n"
    "rope_truncate | bool | true |           | Round the bounds of YaRN's range to whole pairs; false: leave "
    "them between pairs (gpt-oss)\n"
    "rope_channels | int | 0    | 0..1024     | Number of rotated channels of a head, the first ones "
    "(GLM-4.5); 0: all\n"
    "rope_growth | float | 0    | 0..1e6      | Multiply queries by 1 + rope_growth ln(1 + the number of "
    "times that their position has passed rope_original) (Ministral 3)\n"
    "rope_short | floats | []   | 1e-6..1e6   | Slowdown of each pair in sequences of up to rope_switch "
    "positions (longrope's short_factor, Phi-4-mini)\n"
    "rope_long | floats | []    | 1e-6..1e6   | Slowdown of each pair in longer sequences (longrope's "
    "long_factor)\n"
    "rope_switch | int | 0      | 0..1000000000 | Sequence length up to which rope_short applies, and "
    "rope_long beyond it; with either, rope_attention applies too; 0: no longrope\n"
    "latent    | int   | 0      | 0..1048576  | Width of the latent vector of keys and values (kv_lora_rank "
    "of DeepSeek's latent attention, MLA); 0: no latent attention\n"
    "query_latent | int | 0     | 0..1048576  | With `latent`: width of the latent vector of queries "
    "(q_lora_rank); 0: none\n"
    "rope_head_dim | int | 64    | 2..1024     | With `latent`: number of rotated channels of head_dim, the "
    "last ones (qk_rope_head_dim); for keys, all heads share them\n"
    "value_dim | int   | 128    | 1..1024     | With `latent`: channels of a head's value (v_head_dim); at "
    "most head_dim, in which attention computes\n"
    "rope_interleave | bool | true |          | With `latent`: rotate neighbouring channels as pairs; false: "
    "pair the channels of both halves\n"
    "attends_every | int | 0    | 0..100000   | Every n-th layer has attention, all others the gated delta "
    "rule (Qwen3-Next: 4); 0: all have attention, unless attends_layers is set\n"
    "attends_layers | ints | []  | 0..100000   | Further layers with attention, counted from 0\n"
    "delta_key_heads | int | 16 | 1..65536     | Gated delta rule: number of query and key heads\n"
    "delta_value_heads | int | 32 | 1..65536   | Gated delta rule: number of value heads, with one state "
    "each; a multiple of delta_key_heads\n"
    "delta_key_dim | int | 128  | 1..1024     | Gated delta rule: channels of a query or key head\n"
    "delta_value_dim | int | 128 | 1..1024    | Gated delta rule: channels of a value head\n"
    "delta_taps | int | 4       | 1..64       | Gated delta rule: kernel size of the causal convolution "
    "before it, in positions\n"
    "query_scalar | float | 0   | 0..1e6      | Divide attention scores by the square root of this; 0: "
    "head_dim\n"
    "score_softcap | float | 0  | 0..1e6     | Softcap of attention scores: each s becomes score_softcap "
    "tanh(s / score_softcap) (Gemma 2); 0: none\n"
    "logit_softcap | float | 0  | 0..1e6     | Softcap of logits, by the same formula; 0: none\n"
    "attention_dropout | float | 0 | 0..0.95 | Dropout probability of attention weights, in training\n"
    "embedding_scale | float | 1 | 0..1e6     | Factor on embeddings (Granite)\n"
    "residual_scale | float | 1 | 0..1e6      | Factor on what attention and the MLP add to the residual "
    "stream (Granite)\n"
    "logit_divisor | float | 1  | 1e-6..1e6   | Divisor of logits (Granite)\n"
    "positions | int   | 0      | 0..1000000000 | Maximum sequence length of the model, written to exports "
    "(max_position_embeddings); 0: model.seq\n"
    "mtp_layers | int  | 0      | 0..64      | Multi-token prediction modules after the last block, each of "
    "which predicts one token further, in training only (DeepSeek-V3); 0: none\n"
    "mtp_loss  | float | 0.3    | 0..1e6     | Weight of the mean of the multi-token prediction losses\n"
    "norm_eps  | float | 1e-5   | 0..1        | Epsilon added to the mean square in rmsnorm\n"
    PRUN_SPECIAL_TOKENS_OPTIONS("[]", "-1")
    "experts   | int   | 0      | 0..4096     | Mixture of experts: number of experts per layer; 0: one "
    "dense MLP\n"
    "choices   | int   | 2      | 1..4096     | Experts per token (top-k)\n"
    "expert_ffn | int  | 1024   | 1..4194304  | Width of an expert's MLP\n"
    "expert_limit | float | 0   | 0..1e6     | Clamp the inputs of an expert's activation, which then has "
    "the form of gpt-oss; 0: no limit, silu(gate) * up\n"
    "expert_alpha | float | 1.702 | 0..1e6   | With expert_limit: slope of the gate\n"
    "shared_ffn | int  | 0      | 0..4194304  | Width of a shared expert, an MLP that all tokens pass in "
    "addition; 0: none\n"
    "shared_gate | bool | false |             | Multiply the shared expert's output by a gate\n"
    "dense_first | int | 0      | 0..100000   | Number of first layers that have a dense MLP instead of "
    "experts\n"
    "sparse_every | int | 1     | 1..100000   | Every n-th layer has experts, counted from 1\n"
    "dense_layers | ints | []   | 0..100000   | Further layers with a dense MLP, counted from 0\n"
    "router    | choice | softmax | softmax,sigmoid | Scores of experts: a softmax over all, or a sigmoid "
    "for each\n"
    "router_normalise | bool | true |         | Normalize the weights of the chosen experts to a sum of 1\n"
    "router_scale | float | 1   | 0..1e6      | Factor on the weights of experts\n"
    "router_groups | int | 1    | 1..4096     | Number of equal groups of experts; experts are chosen from "
    "the best groups only\n"
    "router_chosen_groups | int | 1 | 1..4096 | Number of groups that experts are chosen from\n"
    "router_group_best | int | 2 | 1..2       | Score of a group: 1: its best expert; 2: the sum of its two "
    "best\n"
    "router_bias | bool | false |             | Add biases to scores for the choice of experts but not for "
    "their weights (balancing without auxiliary loss)\n"
    "router_bias_rate | float | 0.001 | 0..1  | How much a bias changes after each step, against its "
    "expert's load\n"
    "balance   | float | 0      | 0..1e6      | Weight of the load balancing loss, which is taken per "
    "sequence\n"
    "router_z  | float | 0      | 0..1e6      | Weight of the router's z-loss, the mean squared logsumexp of "
    "scores\n"
    "capacity  | float | 0      | 0..1e6      | Capacity factor of an expert in training: tokens of a "
    "sequence that it takes, as a multiple of the mean; further tokens are dropped and counted, identically "
    "in every layout; 0: no limit\n"
    "capacity_by | choice | weight | weight,position | With capacity: tokens that an expert takes first: "
    "those with the largest weights, or the first in the sequence\n");

namespace prun {

// ------------------------------------------------------------------- hugging face
// Writes this model's config.json, as releases of transformers before 5 write it, which later ones read, and
// lists where the parameters are stored in a folder of Hugging Face's libraries.

void Llama::write_config(const ModelContext& context, ConfigWriter& config) const {
  const DecoderBlock& block = block_;
  const GroupedAttention& attention = block.attention;
  config.set("model_type", std::string(family_.model_type));
  config.set("architectures", std::vector<std::string>{std::string(family_.architecture)});
  config.set(family_.activation_key, family_.gelu ? "gelu_pytorch_tanh" : "silu");
  config.set("num_hidden_layers", layers_);
  config.set("hidden_size", block.stream.hidden.extent);
  config.set("num_attention_heads", attention.heads);
  config.set("num_key_value_heads", attention.groups.extent);
  block.latent.write_config(family_, attention.head_dim, config);
  if (!block.latent.present()) config.set("head_dim", attention.head_dim.extent);
  config.set("intermediate_size", block.experts.file_width(family_, block.mlp.ffn.extent));
  block.experts.write_config(family_, layers_, config);
  config.set("vocab_size", vocab_.extent);
  const std::int64_t positions = positions_ ? positions_ : context.seq;
  config.set("max_position_embeddings", positions);
  config.set("tie_word_embeddings", tied_);
  config.set("rms_norm_eps", block.stream.eps);
  block.stream.tokens.write_config(config);
  // One key may state several of these, which are alike then.
  const std::map<std::string_view, bool> biases = {{family_.qkv_key, family_.biases.qkv},
                                                   {family_.out_key, family_.biases.out},
                                                   {family_.mlp_key, family_.biases.mlp}};
  for (const auto& [key, present] : biases)
    if (!key.empty()) config.set(key, present);
  if (!family_.head_norm_key.empty())
    config.set(family_.head_norm_key, family_.head_norm != HeadNorm::absent);
  attention.write_query_scalar(family_, config);
  const auto write_softcap = [&](const char* key, const char* option, double bound, SoftcapKeys least) {
    if (bound != 0 ? family_.softcaps < least : family_.softcaps == SoftcapKeys::must)
      throw_no_key(family_, option);
    if (bound != 0) config.set(key, bound);
  };
  write_softcap("attn_logit_softcapping", "score_softcap", attention.softcap, SoftcapKeys::must);
  write_softcap("final_logit_softcapping", "logit_softcap", logit_softcap_, SoftcapKeys::logits);
  block.stream.write_scales(config);
  if (family_.multipliers)
    config.set("logits_scaling", logit_divisor_);
  else if (logit_divisor_ != 1)
    throw_no_key(family_, "logit_divisor", "logits that are divided");
  block.windows.write_config(family_, layers_, config);
  block.delta.write_config(family_, config);
  block.unturned.write_config(family_, block.windows, layers_, config);
  mtp_.write_config(family_, config);
  write_rope_config(block.rope, family_, positions, config);
  write_rope_channels(block.rope.rope.channels, family_, attention.head_dim.extent, config);
}

ForeignWeights Llama::foreign_weights() const {
  ForeignWeights weights{
      {"model.", ""},
      {{"embedding.token", "model.embed_tokens.weight"}, {"head.norm.gain", "model.norm.weight"}},
      {"*.rotary_emb.inv_freq"}};
  // Further tokens are predicted by layers behind the last one, which other programs leave out as well.
  if (family_.mtp) mtp_.add_weights(block_, weights);
  if ((family_.latent || family_.mtp_left_out) && !mtp_.any())
    weights.ignored.push_back("model.layers." + std::to_string(layers_) + ".*");
  if (family_.mtp_tensors) weights.ignored.emplace_back("mtp.*");
  for (const LayerRun& run : runs()) block_.add_weights(run.kind, {weights, run.segment, run.first});
  if (tied_)
    weights.ignored.emplace_back("lm_head.weight=model.embed_tokens.weight");
  else
    weights.tensors.push_back({"head.weight", "lm_head.weight"});
  return weights;
}

}  // namespace prun
