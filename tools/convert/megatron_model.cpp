// Carries Megatron-LM's arguments of the model over to gpt or llama.
#include "convert/layout.hpp"
#include "convert/megatron_parts.hpp"
#include "prun/error.hpp"

namespace prun::convert::megatron {
namespace {

void convert_flag(Transfer& transfer, std::string_view key, std::string_view to, bool value) {
  transfer.set(to, value, flag(transfer, key) ? std::string(key) : detail::concat("no ", key));
  transfer.carried(key);
}

// Converts a setting that says how the model is built: it is carried over where prun's is built so too.
void differs(Transfer& transfer, bool there_too, const char* key, const char* value, const char* why) {
  if (there_too)
    transfer.has(key) ? transfer.carried(key) : void();
  else if (transfer.has(key))
    transfer.refuse(key, why);
  else
    transfer.refuse_default(key, value, why);
}

bool has_rope(Transfer& transfer) {
  return transfer.is("position-embedding-type", "rope") || flag(transfer, "use-rotary-position-embeddings");
}

void convert_sizes(Transfer& transfer) {
  transfer.take("num-layers", "model.layers");
  transfer.take("hidden-size", "model.hidden");
  transfer.take("num-attention-heads", "model.heads");
  transfer.take("seq-length", "model.seq");
  transfer.take(transfer.has("max-absolute-position-embeddings") ? "max-absolute-position-embeddings"
                                                                 : "max-position-embeddings",
                "model.positions");
  transfer.take("ffn-hidden-size", "model.ffn");
  const char* const eps = transfer.has("layernorm-epsilon") ? "layernorm-epsilon" : "norm-epsilon";
  transfer.take(eps, "model.norm_eps", "1e-5");
  convert_flag(transfer, "untie-embeddings-and-output-weights", "model.tied",
               !flag(transfer, "untie-embeddings-and-output-weights"));
}

void convert_llama_sizes(Transfer& transfer) {
  if (flag(transfer, "group-query-attention") || transfer.has("num-query-groups"))
    transfer.take("num-query-groups", "model.kv_heads", "1");
  transfer.take("kv-channels", "model.head_dim");
  transfer.take("rotary-base", "model.rope_base", "10000");
  convert_flag(transfer, "add-qkv-bias", "model.qkv_bias", flag(transfer, "add-qkv-bias"));
  if (flag(transfer, "use-rope-scaling")) {
    transfer.take("rope-scaling-factor", "model.rope_factor", "8");
    transfer.carried("use-rope-scaling");
  }
  const double hidden = transfer.number("hidden-size").value_or(0);
  if (!transfer.has("ffn-hidden-size") && hidden > 0 && flag(transfer, "swiglu"))
    transfer.set("model.ffn", whole(4 * hidden * 2 / 3) / 64 * 64,
                 "default of Megatron-LM's ffn-hidden-size with swiglu");
}

bool predicts_further(const Transfer& transfer) {
  return transfer.has("mtp-num-layers") && !transfer.is("mtp-num-layers", "0");
}

void convert_llama(Transfer& transfer) {
  convert_llama_sizes(transfer);
  if (predicts_further(transfer)) {
    transfer.take("mtp-num-layers", "model.mtp_layers");
    transfer.take("mtp-loss-scaling-factor", "model.mtp_loss", "0.1");
  }
  differs(transfer, flag(transfer, "swiglu"), "swiglu", "off", "the MLP of llama is SwiGLU");
  differs(transfer, has_rope(transfer), "position-embedding-type", "learned_absolute",
          "llama turns queries and keys by their positions");
  differs(transfer, transfer.is("normalization", "RMSNorm"), "normalization", "LayerNorm",
          "llama norms by RMSNorm");
  differs(transfer, flag(transfer, "disable-bias-linear"), "disable-bias-linear", "off",
          "llama's products have no bias, but for qkv_bias");
  if (flag(transfer, "use-rotary-position-embeddings")) transfer.carried("use-rotary-position-embeddings");
  if (transfer.number("hidden-dropout").value_or(0.1) > 0)
    differs(transfer, false, "hidden-dropout", "0.1", "llama has no dropout");
  else
    transfer.without_effect("hidden-dropout", "as here");
}

void convert_gpt(Transfer& transfer) {
  const double hidden = transfer.number("hidden-size").value_or(0),
               heads = transfer.number("num-attention-heads").value_or(1);
  transfer.take("hidden-dropout", "model.dropout", "0.1");
  if (predicts_further(transfer)) transfer.refuse("mtp-num-layers", "gpt predicts the next token alone");
  if (flag(transfer, "disable-bias-linear"))
    transfer.refuse("disable-bias-linear", "gpt's products have biases");
  if (transfer.has("kv-channels") && transfer.number("kv-channels") != hidden / heads)
    transfer.refuse("kv-channels", "a head of gpt is hidden / heads wide");
  else
    transfer.without_effect("kv-channels", "follows from hidden and heads");
  if (flag(transfer, "group-query-attention"))
    transfer.refuse("group-query-attention", "gpt has as many key and value heads as heads");
}

}  // namespace

void convert_model(Transfer& transfer) {
  const bool llama =
      flag(transfer, "swiglu") || has_rope(transfer) || transfer.is("normalization", "RMSNorm");
  transfer.set_text("model.plugin", llama ? "llama" : "gpt",
                    llama ? (flag(transfer, "swiglu") ? "swiglu" : "normalization and positions")
                          : "learned positions and gelu");
  convert_sizes(transfer);
  llama ? convert_llama(transfer) : convert_gpt(transfer);
  if (!predicts_further(transfer))
    transfer.take("attention-dropout", "model.attention_dropout", "0.1");
  else if (transfer.number("attention-dropout").value_or(0.1) > 0)
    differs(transfer, false, "attention-dropout", "0.1",
            "llama drops no weights of attention beside multi-token prediction");
  else
    transfer.without_effect("attention-dropout", "as here");
}

void convert_vocabulary(Transfer& transfer, std::int64_t tensor) {
  const std::int64_t multiple =
      std::max<std::int64_t>(1, product({transfer.integer("make-vocab-size-divisible-by", 128), tensor}));
  transfer.pad_vocabulary(multiple);
  if (!transfer.has("vocab-size")) return;
  transfer.set("model.vocab", transfer.padded(transfer.integer("vocab-size", 1)),
               detail::concat("vocab-size, padded to a multiple of ", multiple));
  transfer.carried("vocab-size");
}

}  // namespace prun::convert::megatron
