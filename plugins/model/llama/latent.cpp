#include "latent.hpp"

namespace prun {
namespace {

// Transformers' classes norm latent vectors with this, whatever a config.json says of other norms.
constexpr double latent_eps = 1e-6;
constexpr std::int64_t widest = 1024;  // the limit of model.head_dim too

Id latent_norm(const SegmentPart& s, Id x, const char* name, const Dim& width) {
  return s.op("rmsnorm", {x, s.vector(std::string(name) + ".gain", {width}, ones())},
              {{"eps", latent_eps}, {"offset", 0.0}, {"dims", 1.0}});
}

}  // namespace

LatentAttention::LatentAttention(const Options& options)
    : width_(options.integer("latent")),
      query_width_(options.integer("query_latent")),
      turned_(options.integer("rope_head_dim")),
      values_(options.integer("value_dim")),
      interleaved_(options.flag("rope_interleave")) {}

void LatentAttention::check(std::int64_t heads, std::int64_t kv_heads, const Dim& head_dim) const {
  if (!present()) {
    if (query_width_ != 0)
      throw_error(ErrorCode::bad_input,
                  "cannot apply model.query_latent without latent attention; set model.latent");
    return;
  }
  if (heads != kv_heads)
    throw_error(ErrorCode::bad_input, "cannot apply model.kv_heads = ", kv_heads,
                ": latent attention has a key for each of the ", heads, " heads; leave kv_heads out");
  if (turned_ % 2 != 0 || turned_ >= head_dim.extent)
    throw_error(ErrorCode::bad_input, "cannot rotate model.rope_head_dim = ", turned_,
                " channels of model.head_dim = ", head_dim.extent, "; take an even number below it");
  if (values_ > head_dim.extent)
    throw_error(ErrorCode::bad_input, "cannot apply model.value_dim = ", values_,
                ": attention computes in model.head_dim = ", head_dim.extent,
                " channels; take at most so many");
}

Id LatentAttention::queries(const SegmentPart& s, const Dim& hidden, const Dim& heads, const Dim& head_dim,
                            Id x) const {
  const Matrices by_head{.batch = 1, .columns = 1};
  if (query_width_ == 0)
    return s.op("linear", {x, s.matrix(s.weight("q.weight", {heads, head_dim, hidden}), by_head), none});
  const Dim latent{"query_latent", query_width_};
  const Id down = s.matrix(s.weight("q_down.weight", {latent, hidden}), {.columns = 1});
  const Id narrow = latent_norm(s, s.op("linear", {x, down, none}), "q_norm", latent);
  return s.op("linear", {narrow, s.matrix(s.weight("q.weight", {heads, head_dim, latent}), by_head), none});
}

Id LatentAttention::build(const SegmentPart& s, const Dim& hidden, const Dim& heads, const Dim& head_dim,
                          const Rope& rope, Id x, double window, double softcap) const {
  const Dim both{"latents", width_ + turned_}, latent{"latent", width_}, values{"value_dim", values_};
  const std::int64_t straight = head_dim.extent - turned_;
  const Dim of_head{"latent_head", straight + values_};
  const auto turned = static_cast<double>(turned_), wide = static_cast<double>(values_);
  const Id q = queries(s, hidden, heads, head_dim, x);
  const Id down = s.matrix(s.weight("kv_down.weight", {both, hidden}), {.columns = 1, .cuts = {width_}});
  const std::vector<Id> narrow =
      s.ops("split_latent", {s.op("linear", {x, down, none})}, 2, {{"turned", turned}});
  const Id up = s.matrix(s.weight("kv.weight", {heads, of_head, latent}),
                         {.batch = 1, .columns = 1, .cuts = {straight}});
  const Id kv = s.op("linear", {latent_norm(s, narrow[0], "kv_norm", latent), up, none});
  std::vector<AttrValue> attrs = rope.attrs(rope.score_scale());
  attrs.insert(attrs.end(),
               {{"turned", turned}, {"values", wide}, {"interleaved", interleaved_ ? 1.0 : 0.0}});
  const std::vector<Id> apart = s.insert_forward(none, "latent_heads", {q, kv, narrow[1]}, 3, attrs);
  const Id y =
      s.op("narrow_heads",
           {s.op("attention", {apart[0], apart[1], apart[2]}, {{"window", window}, {"softcap", softcap}})},
           {{"values", wide}, {"head_dim", static_cast<double>(head_dim.extent)}});
  return s.op(
      "linear",
      {y, s.matrix(s.weight("proj.weight", {hidden, heads, {"queries", 1}, values}), {.columns = 3}), none},
      {{"in_dims", 3}});
}

// ------------------------------------------------------------------- files

void LatentAttention::read_config(const Options& config, ConfigWriter& options) {
  const std::int64_t straight = config.integer("qk_nope_head_dim"),
                     turned = config.integer("qk_rope_head_dim");
  if (straight < 0 || turned < 0 || straight > widest || turned > widest)
    throw_error(ErrorCode::bad_input, "cannot read 'qk_nope_head_dim' = ", straight,
                " and 'qk_rope_head_dim' = ", turned, ": a head has at most ", widest, " channels");
  options.set("latent", config.integer("kv_lora_rank"));
  if (config.has("q_lora_rank")) options.set("query_latent", config.integer("q_lora_rank"));
  options.set("rope_head_dim", turned);
  options.set("value_dim", config.integer("v_head_dim"));
  options.set("head_dim", straight + turned);
  if (config.has("rope_interleave")) options.set("rope_interleave", config.flag("rope_interleave"));
}

void LatentAttention::write_config(const Family& family, const Dim& head_dim, ConfigWriter& config) const {
  if (family.latent != present())
    throw_error(ErrorCode::unsupported, "cannot write a config.json of model_type '",
                std::string(family.model_type), "': such a model has ",
                present() ? "no latent attention; choose a model.family that has it"
                          : "latent attention; set model.latent, or choose another model.family");
  if (!present()) return;
  config.set("kv_lora_rank", width_);
  if (query_width_ > 0)
    config.set("q_lora_rank", query_width_);
  else
    config.set_null("q_lora_rank");
  config.set("qk_rope_head_dim", turned_);
  config.set("qk_nope_head_dim", head_dim.extent - turned_);
  config.set("v_head_dim", values_);
  if (family.pairs_said)
    config.set("rope_interleave", interleaved_);
  else if (!interleaved_)
    throw_error(
        ErrorCode::unsupported, "a config.json of model_type '", std::string(family.model_type),
        "' has no key for model.rope_interleave = false; leave it out, or choose another model.family");
}

void LatentAttention::add_weights(const LayerWeights& weights) const {
  const auto add = [&](const char* parameter, const char* name, const char* dims = "") {
    weights.add(parameter, std::string("self_attn.") + name, dims);
  };
  if (query_width_ > 0) {
    add("q_down.weight", "q_a_proj.weight");
    add("q_norm.gain", "q_a_layernorm.weight");
    add("q.weight", "q_b_proj.weight", "heads head_dim, query_latent");
  } else {
    add("q.weight", "q_proj.weight", "heads head_dim, hidden");
  }
  add("kv_down.weight", "kv_a_proj_with_mqa.weight");
  add("kv_norm.gain", "kv_a_layernorm.weight");
  add("kv.weight", "kv_b_proj.weight", "heads latent_head, latent");
  add("proj.weight", "o_proj.weight", "hidden, heads queries value_dim");
}

}  // namespace prun
