#include "llama.hpp"

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
      deviation_(options.number("init_std")),
      block_(family_, options),
      mtp_(options) {
  if (mtp_.any() && logit_divisor_ != 1)
    throw_error(ErrorCode::bad_input, "model.logit_divisor = ", logit_divisor_,
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
  s.op("lm_head", {x, weight, s.targets(), s.runtime("inv_targets"), s.runtime("loss_sum")});
  mtp_.build(s, block_, x, {table, weight, seq});
}

}  // namespace prun

PRUN_PLUGIN(
    model, prun::Llama, "llama", "0.1.0",
    "Llama 3, Qwen2 and Qwen3, Mistral, Gemma, OLMo 2 and 3, Phi-3, Granite, SmolLM3, EXAONE 4, Hunyuan, "
    "Seed-OSS, InternLM3, ERNIE 4.5, GLM-4, with experts Mixtral, OLMoE, Qwen's, dots.llm1, DeepSeek-V2 and "
    "V3, GLM-4.5, GLM-4.7-Flash, MiniMax-M2, with the gated delta rule Qwen3-Next and 3.5: "
    "rotary positions, RMSNorm, a gated MLP, GQA",
    "reads=llama,qwen2,qwen3,mistral,ministral,cwm,seed_oss,internlm3,iquestcoder,smollm3,granite,"
    "hunyuan_v1_dense,exaone4,gemma,gemma3_text,olmo2,olmo3,phi3,mixtral,olmoe,flex_olmo,qwen2_moe,"
    "qwen3_moe,dots1,solar_open,exaone_moe,deepseek_v2,deepseek_v3,kimi_k2,glm4_moe_lite,sarvam_mla,youtu,"
    "ministral3,ernie4_5,glm,glm4,glm4_moe,minimax_m2,qwen3_next,qwen3_5_text,qwen3_5_moe_text; "
    "also=llama2,llama3,qwen,qwen2,qwen3,mistral,ministral,cwm,seed,internlm,smollm,smollm3,granite,"
    "hunyuan,exaone,exaone4,gemma,gemma3,olmo,olmo2,olmo3,phi,phi3,mixtral,olmoe,flex_olmo,qwen2_moe,"
    "qwen3_moe,dots1,solar,deepseek,deepseek2,deepseek3,kimi,glm,glm4,sarvam,youtu,"
    "ministral3,ernie,minimax,qwen3_next,qwen3_5",
    "layers    | int   | 32     | 1..100000   | Number of transformer blocks\n"
    "hidden    | int   | 4096   | 1..1048576  | Width of the residual stream\n"
    "heads     | int   | 32     | 1..65536    | Query heads\n"
    "kv_heads  | int   | 0      | 0..65536    | Key and value heads; divides heads; 0: as many as heads\n"
    "head_dim  | int   | 0      | 0..1024     | Width of a head; 0: hidden / heads\n"
    "ffn       | int   | 14336  | 1..4194304  | Width of the MLP\n"
    "vocab     | int   | 128256 | 2..16777216 | Rows of the token table\n"
    "tied      | bool  | false  |             | The head shares the token table\n"
    "init_std  | float | 0.02   | 0..1000     | Standard deviation of the normal numbers that weights start "
    "from\n"
    "family    | choice | llama | "
    "llama,qwen3,mistral,ministral,cwm,seed_oss,internlm3,iquestcoder,smollm3,granite,hunyuan,exaone4,"
    "gemma,gemma3,olmo2,olmo3,phi3,mixtral,olmoe,flex_olmo,qwen2_moe,qwen3_moe,dots1,solar_open,exaone_moe,"
    "deepseek2,deepseek3,glm4_moe_lite,sarvam_mla,youtu,ministral3,ernie4_5,glm,glm4,glm4_moe,minimax_m2,"
    "qwen3_next,qwen3_5,qwen3_5_moe | "
    "Where norms stand and "
    "what they "
    "norm, the "
    "MLP's gate, and the files of an export\n"
    "qkv_bias  | bool  | false  |             | Biases on queries, keys and values (Qwen2)\n"
    "out_bias  | bool  | false  |             | A bias on the projection behind attention\n"
    "mlp_bias  | bool  | false  |             | Biases on the projections of the MLP\n"
    "head_norm | bool  | true   |             | Queries and keys are normed, in families whose files say "
    "whether (GLM-4.5)\n"
    "window    | int   | 0      | 0..1000000000 | Positions that a position sees at most, itself among them; "
    "0: "
    "all before it\n"
    "window_from | int | 0      | 0..100000   | The first layer that has the window; those before it see "
    "all\n"
    "full_every | int  | 0      | 0..100000   | Each layer of such a number sees all, as Gemma 3's each "
    "sixth; 0: "
    "none does\n"
    "full_layers | ints | []    | 0..100000   | Others that see all, counted from 0\n"
    "unturned_every | int | 0   | 0..100000   | Layers of such a number do not turn positions at all, as "
    "SmolLM3's each fourth; 0: all do\n"
    "unturned_layers | ints | [] | 0..100000  | Others that do not, counted from 0\n"
    "rope_base | float | 500000 | 1..1e12     | Base of the rotary frequencies\n"
    "rope_base_window | float | 0 | 0..1e12   | That of layers with the window, which no factor slows down "
    "(Gemma "
    "3); 0: they turn as the others\n"
    "rope_scaling | choice | llama3 | llama3,linear,yarn,dynamic | Which pairs rope_factor slows down: by "
    "their turns in rope_original, all, by their number between rope_high's and rope_low's, or none up to "
    "model.positions\n"
    "rope_factor | float | 1    | 1..1e6      | How much slower pairs turn that turned too slowly to be "
    "learned (Llama 3.1); 1: none\n"
    "rope_low  | float | 1      | 0..1e6      | Pairs are slowed down by all of rope_factor that turn round "
    "less often in rope_original\n"
    "rope_high | float | 4      | 0..1e6      | Pairs are not slowed down that turn round more often in "
    "rope_original\n"
    "rope_original | float | 8192 | 1..1e9    | Positions of the sequences that it was first trained on\n"
    "rope_attention | float | 1 | 0..1e6      | Queries and keys are multiplied by it where rope_factor is "
    "not 1 "
    "(YaRN)\n"
    "rope_mscale | float | 0    | 0..1e6      | Scores of latent attention are multiplied by the square of 1 "
    "+ 0.1 "
    "rope_mscale ln(rope_factor) (YaRN in DeepSeek's)\n"
    "rope_channels | int | 0    | 0..1024     | Channels of a head that turn, the first ones (GLM-4.5); 0: "
    "all\n"
    "rope_growth | float | 0    | 0..1e6      | Queries are multiplied by 1 + rope_growth ln(1 + the times "
    "that their position has passed rope_original) (Ministral 3)\n"
    "latent    | int   | 0      | 0..1048576  | Width of the vector that keys and values of all heads are "
    "made from "
    "(DeepSeek's latent attention); 0: none\n"
    "query_latent | int | 0     | 0..1048576  | Width of the one that queries are made from; 0: none\n"
    "turned    | int   | 64     | 2..1024     | Of head_dim channels, with `latent`: the last that turn with "
    "the "
    "position; those of keys are one for all heads\n"
    "value_dim | int   | 128    | 1..1024     | Width of a head's value, with `latent`; head_dim at most, "
    "which "
    "attention computes in\n"
    "turned_pairs | bool | true |             | Neighbours among the channels that turn make a pair, with "
    "`latent`; "
    "false: those of its two halves\n"
    "attends_every | int | 0    | 0..100000   | Each layer of such a number has attention, and all others the "
    "gated delta rule (Qwen3-Next's each fourth); 0: without attends_layers all have attention\n"
    "attends_layers | ints | []  | 0..100000   | Others that have attention, counted from 0\n"
    "delta_key_heads | int | 16 | 1..65536     | Key heads of the gated delta rule, each of which has a query "
    "and a key\n"
    "delta_value_heads | int | 32 | 1..65536   | Its values, each with a state of its own; a multiple of "
    "delta_key_heads\n"
    "delta_key_dim | int | 128  | 1..1024     | Width of its queries and keys\n"
    "delta_value_dim | int | 128 | 1..1024    | Width of its values\n"
    "delta_taps | int | 4       | 1..64       | Positions that the convolution in front of it sees, the own "
    "among them\n"
    "query_scalar | float | 0   | 0..1e6      | Scores are divided by its root; 0: head_dim\n"
    "embedding_scale | float | 1 | 0..1e6     | Embeddings are multiplied by it (Granite)\n"
    "residual_scale | float | 1 | 0..1e6      | What attention and the MLP add is multiplied by it (Granite)\n"
    "logit_divisor | float | 1  | 1e-6..1e6   | Logits are divided by it (Granite)\n"
    "positions | int   | 0      | 0..1000000000 | Longest sequence that it is meant for, as an export says; "
    "0: model.seq\n"
    "mtp_layers | int  | 0      | 0..64      | Modules behind the last block, each of which predicts one "
    "token "
    "further, in training only (multi-token prediction of DeepSeek-V3); 0: none\n"
    "mtp_loss  | float | 0.3    | 0..1e6     | Weight of the mean of their losses\n"
    "norm_eps  | float | 1e-5   | 0..1        | Added to the mean square in rmsnorm\n"
    PRUN_SPECIAL_TOKENS_OPTIONS("[]", "-1")
    "experts   | int   | 0      | 0..4096     | MLPs of a layer among which each position chooses; 0: one "
    "for all\n"
    "choices   | int   | 2      | 1..4096     | Experts that a position goes through\n"
    "expert_ffn | int  | 1024   | 1..4194304  | Width of an expert\n"
    "shared_ffn | int  | 0      | 0..4194304  | Width of an MLP that all positions pass beside their "
    "experts; 0: none\n"
    "shared_gate | bool | false |             | A gate on what that gives\n"
    "dense_first | int | 0      | 0..100000   | Layers in front that have an MLP instead of experts\n"
    "sparse_every | int | 1     | 1..100000   | Each layer of such a number has experts, counted from 1\n"
    "dense_layers | ints | []   | 0..100000   | Others that have none, counted from 0\n"
    "router    | choice | softmax | softmax,sigmoid | Scores of experts: shares of one, or each by itself\n"
    "router_normalise | bool | true |         | The weights of the chosen come to 1\n"
    "router_scale | float | 1   | 0..1e6      | Weights are multiplied by it\n"
    "router_groups | int | 1    | 1..4096     | Equal groups of experts, of which the best are chosen among\n"
    "router_chosen_groups | int | 1 | 1..4096 | How many groups that is\n"
    "router_group_best | int | 2 | 1..2       | A group counts by its best expert, or by the sum of its two "
    "best\n"
    "router_bias | bool | false |             | Biases of scores that choose and do not weigh\n"
    "router_bias_rate | float | 0.001 | 0..1  | How far a bias moves after a step, against its expert's "
    "load\n"
    "balance   | float | 0      | 0..1e6      | Weight of what uneven loads of a sequence cost\n"
    "router_z  | float | 0      | 0..1e6      | Weight of the mean square of the logarithm of scores' "
    "sums\n"
    "capacity  | float | 0      | 0..1e6      | In training, positions of a sequence that an expert takes at "
    "most, as a multiple of the mean; what goes beyond is dropped and counted, alike in every layout. 0: "
    "nothing is dropped\n"
    "capacity_by | choice | weight | weight,position | Which choices of an expert go first: by their "
    "weights, "
    "or "
    "in the order of positions\n");
