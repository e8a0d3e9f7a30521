// ModernBERT sees both directions: some layers all positions, the others those near a position, with bases of
// rotary positions of their own. It has norms without biases in front of each sublayer, but for the first
// one, which the embedding's norm serves, a gated gelu, and the head of BERT. It predicts masked tokens,
// which the data chooses. It describes one microbatch over whole tensors and knows nothing of parallelism.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "blocks.hpp"
#include "prun/plugin.hpp"
#include "special_tokens.hpp"

namespace prun {

// ------------------------------------------------------------------- modernbert

class ModernBert final : public Model {
 public:
  explicit ModernBert(const Options& options);
  void build(const ModelContext& context, ProgramRef program) override;

  static void read_config(const Options& config, ConfigWriter& options);
  void write_config(const ModelContext& context, ConfigWriter& config) const override;
  ForeignWeights foreign_weights() const override;

 private:
  // Names layers that are alike and follow each other: a segment of the program.
  struct Run {
    std::string segment;
    std::int64_t first, count;
    bool full, normed;  // sees all positions; has a norm in front of attention
  };
  std::vector<Run> runs() const;
  bool is_full(std::int64_t layer) const;

  Id embedding(ProgramRef program) const;
  void block(const Segment& s, const Run& run) const;
  Id attention(const Segment& s, const Run& run, Id x) const;
  Id mlp(const Segment& s, Id x) const;
  void head(const Segment& s, Id table) const;
  Id norm(const Segment& s, Id x, const std::string& name, const Dim& width) const;

  std::int64_t layers_;
  Widths widths_;
  std::int64_t positions_, window_, full_every_;
  std::vector<std::int64_t> full_;  // layers that see all besides
  double base_, window_base_;
  Init inner_, residual_;  // of matrices, and of those into the residual stream
  Dropout dropout_;
  AttentionDropout attention_dropout_;
  double eps_;
  bool head_bias_;
  SpecialTokens tokens_;
};

ModernBert::ModernBert(const Options& options)
    : layers_(options.integer("layers")),
      widths_(options),
      positions_(options.integer("positions")),
      window_(options.integer("window")),
      full_every_(options.integer("full_every")),
      base_(options.number("rope_base")),
      window_base_(options.number("rope_base_window")),
      inner_(normal(options.number("init_std"))),
      residual_(normal(options.number("init_std") / std::sqrt(2.0 * static_cast<double>(layers_)))),
      dropout_{options.number("dropout")},
      attention_dropout_{options.number("attention_dropout")},
      eps_(options.number("norm_eps")),
      head_bias_(options.flag("head_bias")),
      tokens_(options) {
  for (const double layer : options.numbers("full_layers")) full_.push_back(static_cast<std::int64_t>(layer));
  if (widths_.head_dim.extent % 2 != 0)
    throw_error(ErrorCode::bad_input, "model.hidden / model.heads = ", widths_.head_dim.extent,
                " is odd, and rotary positions turn pairs");
}

bool ModernBert::is_full(std::int64_t layer) const {
  return window_ == 0 || (full_every_ > 0 && layer % full_every_ == 0) ||
         std::find(full_.begin(), full_.end(), layer) != full_.end();
}

std::vector<ModernBert::Run> ModernBert::runs() const {
  std::vector<Run> runs;
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    const bool full = is_full(layer), normed = layer > 0;
    if (runs.empty() || runs.back().full != full || runs.back().normed != normed)
      runs.push_back({"block" + std::to_string(layer), layer, 0, full, normed});
    ++runs.back().count;
  }
  return runs;
}

void ModernBert::build(const ModelContext&, ProgramRef program) {
  const Id table = embedding(program);
  for (const Run& run : runs()) block(program.segment(run.segment, run.count), run);
  head(program.segment("head"), table);
}

Id ModernBert::embedding(ProgramRef program) const {
  const Segment s = program.segment("embedding");
  const Id table = s.weight("token", {widths_.vocab, widths_.hidden}, inner_);
  const Id words =
      s.op("embedding", {s.tokens(), table}, {{"padding", static_cast<double>(tokens_.padding)}});
  s.outgoing(dropout_.of(s, norm(s, words, "norm", widths_.hidden), 0));
  return table;
}

void ModernBert::block(const Segment& s, const Run& run) const {
  const Id x = s.incoming();
  const Id near = s.op("add", {x, attention(s, run, run.normed ? norm(s, x, "norm1", widths_.hidden) : x)});
  s.outgoing(s.op("add", {near, mlp(s, norm(s, near, "norm2", widths_.hidden))}));
}

Id ModernBert::attention(const Segment& s, const Run& run, Id x) const {
  const Id qkv = s.op("linear", {x, widths_.packed_weight(s, inner_), none});
  const std::vector<Id> of = s.ops("rope", {qkv}, 3, {{"base", run.full ? base_ : window_base_}});
  const Id seen = attention_dropout_.of(
      s, of, {{"causal", 0}, {"window", run.full ? 0.0 : static_cast<double>(window_)}});
  return Dropout{attention_dropout_.probability}.of(s, widths_.projected(s, seen, residual_, false), 1);
}

Id ModernBert::mlp(const Segment& s, Id x) const {
  const Id up = s.matrix(s.weight("up.weight", {{"gate", 2}, widths_.ffn, widths_.hidden}, inner_),
                         {.columns = 1, .cuts = {1}});
  const Id down = s.matrix(s.weight("down.weight", {widths_.hidden, widths_.ffn}, residual_), {.columns = 1});
  return s.op("linear", {dropout_.of(s, s.op("geglu_erf", {s.op("linear", {x, up, none})}), 0), down, none});
}

void ModernBert::head(const Segment& s, Id table) const {
  const Dim width{"transform", widths_.hidden.extent};
  const Id projected = s.op(
      "linear",
      {norm(s, s.incoming(), "last_norm", widths_.hidden),
       s.matrix(s.weight("transform.weight", {width, widths_.hidden}, residual_), {.columns = 1}), none});
  const Id x = norm(s, s.op("gelu_erf", {projected}), "norm", width);
  s.op("lm_head", {x, s.tie(table), s.targets(), s.runtime("inv_targets"), s.runtime("loss_sum"), none,
                   head_bias_ ? s.vector("bias", {widths_.vocab}, zeros()) : none});
}

Id ModernBert::norm(const Segment& s, Id x, const std::string& name, const Dim& width) const {
  return s.op("layernorm", {x, s.vector(name + ".gain", {width}, ones()), none}, {{"eps", eps_}});
}

namespace {

// ------------------------------------------------------------------- hugging face
// Reads and writes ModernBERT as Hugging Face's libraries keep it: ModernBertForMaskedLM.

constexpr std::int64_t usual_every = 3, usual_reach = 128;  // where files do not say it

std::int64_t integer_or(const Options& config, const char* key, std::int64_t otherwise) {
  return config.has(key) ? config.integer(key) : otherwise;
}

void refuse(const Options& config) {
  expect_text(config, "hidden_activation", {"gelu"});
  expect_text(config, "classifier_activation", {"gelu"});
  for (const char* biases : {"norm_bias", "attention_bias", "mlp_bias", "classifier_bias"})
    expect_flag(config, biases, false);
  expect_flag(config, "tie_word_embeddings", true);
  expect_absent(config, "quantization_config", "weights of few bits");
  expect_absent(config, "rope_scaling", "positions that turn slower");
}

// Older files have a number for each kind of layer, newer ones a table, which counts.
double read_base(const Options& config, const std::string& kind, const char* older, double otherwise) {
  const std::string table = "rope_parameters." + kind;
  if (config.has(table)) expect_text(config, table + ".rope_type", {"default"});
  const std::string key = table + ".rope_theta";
  if (config.has("rope_parameters") && config.has(older))
    throw_error(ErrorCode::bad_input, "'", older, "' stands beside 'rope_parameters'; leave one of them");
  if (config.has("rope_parameters") && config.has(key)) return config.number(key);
  return config.has(older) ? config.number(older) : otherwise;
}

// Reads which layers see all: each of a number from the first on, or those of a list.
void read_layers(const Options& config, std::int64_t layers, ConfigWriter& options) {
  const std::int64_t every = integer_or(config, "global_attn_every_n_layers", usual_every);
  if (!config.has("layer_types")) {
    if (every < 1)
      throw_error(ErrorCode::bad_input, "'global_attn_every_n_layers' is ", every,
                  ", and each layer of a number above 0 sees all");
    return options.set("full_every", every);
  }
  const std::vector<std::string> kinds = config.texts("layer_types");
  if (static_cast<std::int64_t>(kinds.size()) != layers)
    throw_error(ErrorCode::bad_input, "'layer_types' lists ", kinds.size(), " layers of ", layers);
  std::vector<std::int64_t> full;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const std::string& kind = kinds[static_cast<std::size_t>(layer)];
    if (kind == "full_attention")
      full.push_back(layer);
    else if (kind != "sliding_attention")
      throw_error(ErrorCode::bad_input, "'layer_types' has '", kind,
                  "', and layers of this model are 'full_attention' or 'sliding_attention'");
  }
  std::int64_t step = full.size() > 1 ? full[1] : layers;
  for (std::size_t i = 0; i < full.size(); ++i)
    if (full[i] != static_cast<std::int64_t>(i) * step) step = 0;
  if (full.empty() || (static_cast<std::int64_t>(full.size()) - 1) * step + step < layers) step = 0;
  options.set("full_every", step);
  if (step == 0) options.set("full_layers", full);
}

}  // namespace

// Leaves dropout to the user: it is no part of the model.
void ModernBert::read_config(const Options& config, ConfigWriter& options) {
  refuse(config);
  Widths::read_config(config, options);
  options.set("positions", integer_or(config, "max_position_embeddings", 8192));
  const std::int64_t reach = integer_or(config, "local_attention", usual_reach);
  if (reach < 2 || reach % 2 != 0)
    throw_error(ErrorCode::bad_input, "'local_attention' is ", reach,
                ", and a position sees as far back as ahead: half of an even number");
  options.set("window", reach / 2 + 1);
  read_layers(config, config.integer("num_hidden_layers"), options);
  options.set("rope_base", read_base(config, "full_attention", "global_rope_theta", 160000));
  options.set("rope_base_window", read_base(config, "sliding_attention", "local_rope_theta", 10000));
  options.set("norm_eps", config.has("norm_eps") ? config.number("norm_eps") : 1e-5);
  if (config.has("decoder_bias")) options.set("head_bias", config.flag("decoder_bias"));
  SpecialTokens::read_config(config, options);
}

void ModernBert::write_config(const ModelContext& context, ConfigWriter& config) const {
  config.set("model_type", "modernbert");
  config.set("architectures", std::vector<std::string>{"ModernBertForMaskedLM"});
  config.set("hidden_activation", "gelu");
  config.set("classifier_activation", "gelu");
  widths_.write_config(layers_, config);
  config.set("max_position_embeddings", positions_ ? positions_ : context.seq);
  config.set("local_attention", window_ > 1 ? 2 * (window_ - 1) : usual_reach);
  if (window_ == 1)
    throw_error(
        ErrorCode::unsupported,
        "a config.json of model_type 'modernbert' has no key for model.window = 1; take 0 or 2 and more");
  std::vector<std::string> kinds;
  bool in_turn = true;
  const std::int64_t every = full_every_ > 0 ? full_every_ : usual_every;
  for (std::int64_t layer = 0; layer < layers_; ++layer) {
    kinds.emplace_back(is_full(layer) ? "full_attention" : "sliding_attention");
    in_turn = in_turn && is_full(layer) == (layer % every == 0);
  }
  // Releases of transformers before 5 know the number alone, later ones take the list.
  if (in_turn) config.set("global_attn_every_n_layers", every);
  config.set("layer_types", kinds);
  config.set("global_rope_theta", base_);
  config.set("local_rope_theta", window_base_);
  for (const char* biases : {"norm_bias", "attention_bias", "mlp_bias", "classifier_bias"})
    config.set(biases, false);
  config.set("decoder_bias", head_bias_);
  config.set("tie_word_embeddings", true);
  config.set("norm_eps", eps_);
  config.set("embedding_dropout", dropout_.probability);
  config.set("mlp_dropout", dropout_.probability);
  config.set("attention_dropout", attention_dropout_.probability);
  tokens_.write_config(config);
}

ForeignWeights ModernBert::foreign_weights() const {
  ForeignWeights weights{{"model.", ""}, {}, {"decoder.weight=model.embeddings.tok_embeddings.weight"}};
  const WeightNames names(weights);
  names.add("embedding.token", "model.embeddings.tok_embeddings.weight");
  names.add("embedding.norm.gain", "model.embeddings.norm.weight");
  for (const Run& run : runs()) {
    const auto add = [&](const char* parameter, const char* name, const char* dims = "") {
      weights.tensors.push_back(
          {run.segment + "." + parameter, std::string("model.layers.*.") + name, dims, "", 0, 0, run.first});
    };
    if (run.normed) add("norm1.gain", "attn_norm.weight");
    add("qkv.weight", "attn.Wqkv.weight", "packed heads head_dim, hidden");
    add("proj.weight", "attn.Wo.weight", "hidden, heads queries head_dim");
    add("norm2.gain", "mlp_norm.weight");
    add("up.weight", "mlp.Wi.weight", "gate ffn, hidden");
    add("down.weight", "mlp.Wo.weight");
  }
  names.add("head.last_norm.gain", "model.final_norm.weight");
  names.add("head.transform.weight", "head.dense.weight");
  names.add("head.norm.gain", "head.norm.weight");
  if (head_bias_) names.add("head.bias", "decoder.bias");
  return weights;
}

}  // namespace prun

PRUN_PLUGIN(
    model, prun::ModernBert, "modernbert", "0.1.0",
    "ModernBERT: bidirectional, alternating full and sliding-window attention, a loss on masked tokens",
    "reads=modernbert; predicts=masked; also=modern_bert",
    "layers   | int   | 22    | 1..1000     | Number of transformer blocks\n"
    "hidden   | int   | 768   | 1..1048576  | Hidden size, the width of the residual stream\n"
    "heads    | int   | 12    | 1..65536    | Attention heads; must divide hidden\n"
    "ffn      | int   | 1152  | 1..4194304  | Width of the MLP\n"
    "vocab    | int   | 50368 | 2..16777216 | Vocabulary size\n"
    "window   | int   | 65    | 0..1000000000 | Sliding-window attention: number of positions attended to in "
    "each direction, itself included, in layers without full attention; 0: all layers have full attention\n"
    "full_every | int | 3     | 0..100000   | Every n-th layer has full attention, starting with the first; "
    "0: none\n"
    "full_layers | ints | []  | 0..100000   | Further layers with full attention, counted from 0\n"
    "rope_base | float | 160000 | 1..1e12    | Base of the rotary frequencies in layers with full attention\n"
    "rope_base_window | float | 10000 | 1..1e12 | Base of the rotary frequencies in layers with the window\n"
    "positions | int  | 0     | 0..1000000000 | Maximum sequence length of the model, written to exports "
    "(max_position_embeddings); 0: model.seq\n"
    "init_std | float | 0.02  | 0..1000     | Standard deviation of the normal distribution of initial "
    "weights; divided by sqrt(2 * layers) for projections into the residual stream\n"
    "dropout  | float | 0     | 0..0.95     | Dropout probability after the embedding and within the MLP\n"
    "attention_dropout | float | 0 | 0..0.95 | Dropout probability of attention weights and of attention's "
    "output\n"
    "norm_eps | float | 1e-5  | 0..1        | Epsilon added to the variance in layernorm\n"
    "head_bias | bool | true  |             | Add a bias for each token to the "
    "head\n" PRUN_SPECIAL_TOKENS_OPTIONS("[]", "-1"));
