// Reads and writes BERT as Hugging Face's libraries keep it: BertForMaskedLM.
#include "bert.hpp"

namespace prun {

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
