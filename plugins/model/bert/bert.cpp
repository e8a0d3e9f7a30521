// BERT has both directions, learned positions and token types, a norm behind each sublayer, and a head with a
// projection of its own in front of the token table and a bias for each word. It predicts masked tokens,
// which the data chooses. It describes one microbatch over whole tensors and knows nothing of parallelism.
#include <string>

#include "blocks.hpp"
#include "prun/plugin.hpp"
#include "special_tokens.hpp"

namespace prun {

// ------------------------------------------------------------------- bert

class Bert final : public Model {
 public:
  explicit Bert(const Options& options);
  void build(const ModelContext& context, ProgramRef program) override;

  static void read_config(const Options& config, ConfigWriter& options);
  void write_config(const ModelContext& context, ConfigWriter& config) const override;
  ForeignWeights foreign_weights() const override;

 private:
  Id embedding(const ModelContext& context, ProgramRef program) const;
  void block(const Segment& s) const;
  void head(const Segment& s, Id table) const;
  const char* activation() const { return activation_ == "gelu" ? "gelu_erf" : "gelu"; }

  std::int64_t layers_;
  Widths widths_;
  PositionTable positions_;
  std::int64_t types_, separator_;
  std::string activation_;
  double deviation_;  // that of initial weights
  Dropout dropout_;
  AttentionDropout attention_dropout_;
  LayerNorm norm_;
  SpecialTokens tokens_;
};

Bert::Bert(const Options& options)
    : layers_(options.integer("layers")),
      widths_(options),
      positions_{options.integer("positions")},
      types_(options.integer("types")),
      separator_(options.integer("separator")),
      activation_(options.text("activation")),
      deviation_(options.number("init_std")),
      dropout_{options.number("dropout")},
      attention_dropout_{options.number("attention_dropout")},
      norm_{options.number("norm_eps")},
      tokens_(options) {
  if (separator_ >= widths_.vocab.extent)
    throw_error(ErrorCode::bad_input, "model.separator = ", separator_,
                " is outside of model.vocab = ", widths_.vocab.extent);
}

void Bert::build(const ModelContext& context, ProgramRef program) {
  const Id table = embedding(context, program);
  block(program.segment("block", layers_));
  head(program.segment("head"), table);
}

Id Bert::embedding(const ModelContext& context, ProgramRef program) const {
  const Segment s = program.segment("embedding");
  const Dim& hidden = widths_.hidden;
  const Id table = s.weight("token", {widths_.vocab, hidden}, normal(deviation_));
  const Id positions = s.weight("position", {positions_.rows(context), hidden}, normal(deviation_));
  const Id types = s.weight("type", {{"types", types_}, hidden}, normal(deviation_));
  const Id kinds =
      s.op("token_types", {s.tokens()},
           {{"separator", static_cast<double>(separator_)}, {"types", static_cast<double>(types_)}});
  const Id looked_up =
      s.op("embedding", {s.tokens(), table}, {{"padding", static_cast<double>(tokens_.padding)}});
  const Id words = s.op("add", {looked_up, s.op("embedding", {kinds, types})});
  const Id x = s.op("add_position", {words, positions});
  s.outgoing(dropout_.of(s, norm_.of(s, x, "norm", hidden), 0));
  return table;
}

void Bert::block(const Segment& s) const {
  const BiasedSublayers sublayers{widths_, normal(deviation_), normal(deviation_), attention_dropout_};
  const Id x = s.incoming();
  const Id near = s.op("add", {x, dropout_.of(s, sublayers.attention(s, x, false), 0)});
  const Id seen = norm_.of(s, near, "norm1", widths_.hidden);
  const Id made = s.op("add", {seen, dropout_.of(s, sublayers.mlp(s, seen, activation()), 1)});
  s.outgoing(norm_.of(s, made, "norm2", widths_.hidden));
}

void Bert::head(const Segment& s, Id table) const {
  const Dim& hidden = widths_.hidden;
  const Dim width{"transform", hidden.extent};
  const Id projected = s.op(
      "linear", {s.incoming(),
                 s.matrix(s.weight("transform.weight", {width, hidden}, normal(deviation_)), {.columns = 1}),
                 s.vector("transform.bias", {width}, zeros())});
  const Id x = norm_.of(s, s.op(activation(), {projected}), "norm", width);
  s.op("lm_head", {x, s.tie(table), s.targets(), s.runtime("inv_targets"), s.runtime("loss_sum"), none,
                   s.vector("bias", {widths_.vocab}, zeros())});
}

// ------------------------------------------------------------------- hugging face
// Reads and writes BERT as Hugging Face's libraries keep it: BertForMaskedLM.

// Its dropout is a choice of the user, and no part of the model; config.json does not say which token
// separates two types.
void Bert::read_config(const Options& config, ConfigWriter& options) {
  expect_text(config, "hidden_act", {"gelu", "gelu_new", "gelu_pytorch_tanh"});
  expect_text(config, "position_embedding_type", {"absolute"});
  expect_flag(config, "is_decoder", false);
  expect_flag(config, "add_cross_attention", false);
  expect_flag(config, "tie_word_embeddings", true);
  expect_absent(config, "quantization_config", "weights of few bits");
  Widths::read_config(config, options);
  SpecialTokens::read_config(config, options);
  options.set("positions", config.integer("max_position_embeddings"));
  options.set("types", config.integer("type_vocab_size"));
  const bool by_erf = !config.has("hidden_act") || config.text("hidden_act") == "gelu";
  options.set("activation", by_erf ? "gelu" : "gelu_tanh");
  options.set("norm_eps", config.has("layer_norm_eps") ? config.number("layer_norm_eps") : 1e-12);
}

void Bert::write_config(const ModelContext& context, ConfigWriter& config) const {
  config.set("model_type", "bert");
  config.set("architectures", std::vector<std::string>{"BertForMaskedLM"});
  config.set("hidden_act", activation_ == "gelu" ? "gelu" : "gelu_new");
  widths_.write_config(layers_, config);
  config.set("max_position_embeddings", positions_.rows(context).extent);
  config.set("type_vocab_size", types_);
  config.set("tie_word_embeddings", true);
  config.set("layer_norm_eps", norm_.eps);
  config.set("hidden_dropout_prob", dropout_.probability);
  config.set("attention_probs_dropout_prob", attention_dropout_.probability);
  tokens_.write_config(config);
}

ForeignWeights Bert::foreign_weights() const {
  ForeignWeights weights{{"bert.", ""},
                         {},
                         {"bert.embeddings.position_ids", "bert.pooler.*", "cls.seq_relationship.*",
                          "cls.predictions.decoder.weight=bert.embeddings.word_embeddings.weight",
                          "cls.predictions.decoder.bias=cls.predictions.bias"}};
  const WeightNames names(weights);
  const auto add_packed = [&](const std::string& name, std::int64_t slot) {
    const std::string there = "bert.encoder.layer.*.attention.self." + name;
    weights.tensors.push_back(
        {"block.qkv.weight", there + ".weight", "heads packed head_dim, hidden", "packed", slot, slot + 1});
    weights.tensors.push_back(
        {"block.qkv.bias", there + ".bias", "heads packed head_dim", "packed", slot, slot + 1});
  };
  names.add("embedding.token", "bert.embeddings.word_embeddings.weight");
  names.add("embedding.position", "bert.embeddings.position_embeddings.weight");
  names.add("embedding.type", "bert.embeddings.token_type_embeddings.weight");
  names.add_norm("embedding.norm", "bert.embeddings.LayerNorm");
  add_packed("query", 0);
  add_packed("key", 1);
  add_packed("value", 2);
  const std::string layer = "bert.encoder.layer.*.";
  names.add("block.proj.weight", layer + "attention.output.dense.weight", "hidden, heads queries head_dim");
  names.add("block.proj.bias", layer + "attention.output.dense.bias");
  names.add_norm("block.norm1", layer + "attention.output.LayerNorm");
  names.add("block.up.weight", layer + "intermediate.dense.weight");
  names.add("block.up.bias", layer + "intermediate.dense.bias");
  names.add("block.down.weight", layer + "output.dense.weight");
  names.add("block.down.bias", layer + "output.dense.bias");
  names.add_norm("block.norm2", layer + "output.LayerNorm");
  names.add("head.transform.weight", "cls.predictions.transform.dense.weight");
  names.add("head.transform.bias", "cls.predictions.transform.dense.bias");
  names.add_norm("head.norm", "cls.predictions.transform.LayerNorm");
  names.add("head.bias", "cls.predictions.bias");
  return weights;
}

}  // namespace prun

PRUN_PLUGIN(
    model, prun::Bert, "bert", "0.1.0", "BERT: bidirectional, token types, a loss on masked tokens",
    "reads=bert; predicts=masked; also=mlm,masked_lm",
    "layers   | int   | 12    | 1..100000   | Number of transformer blocks\n"
    "hidden   | int   | 768   | 1..1048576  | Hidden size, the width of the residual stream\n"
    "heads    | int   | 12    | 1..65536    | Attention heads; must divide hidden\n"
    "ffn      | int   | 0     | 0..4194304  | Width of the MLP; 0: 4 * hidden\n"
    "vocab    | int   | 30522 | 2..16777216 | Vocabulary size\n"
    "positions | int  | 0     | 0..16777216 | Rows of the position embedding; 0: model.seq\n"
    "types    | int   | 2     | 1..65536    | Number of token types\n"
    "separator | int  | -1    | -1..16777215 | Token after which the token type increases, 102 ([SEP]) for "
    "bert-base; -1: all tokens have the first type\n"
    "activation | choice | gelu | gelu,gelu_tanh | Activation of the MLP and the head; gelu: the exact one, "
    "by erf\n"
    "init_std | float | 0.02  | 0..1000     | Standard deviation of the normal distribution of initial "
    "weights\n"
    "dropout  | float | 0     | 0..0.95     | Dropout probability after the embedding, attention and MLP\n"
    "attention_dropout | float | 0 | 0..0.95 | Dropout probability of attention weights\n"
    "norm_eps | float | 1e-12 | 0..1        | Epsilon added to the variance in "
    "layernorm\n" PRUN_SPECIAL_TOKENS_OPTIONS("[]", "-1"));
