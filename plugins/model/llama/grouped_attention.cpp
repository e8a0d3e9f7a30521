#include "grouped_attention.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace prun {

// ------------------------------------------------------------------- residual stream

ResidualStream::ResidualStream(const Family& of, const Options& options)
    : family(of),
      hidden{"hidden", options.integer("hidden")},
      eps(options.number("norm_eps")),
      embedding_scale(options.number("embedding_scale")),
      residual_scale(options.number("residual_scale")),
      tokens(options) {}

Id ResidualStream::scaled(const SegmentPart& s, Id x, double factor) {
  return factor == 1 ? x : s.op("scale", {x}, {{"factor", factor}});
}

Id ResidualStream::embedded(const SegmentPart& s, Id numbers, Id table) const {
  const Id x = s.op("embedding", {numbers, table}, {{"padding", static_cast<double>(tokens.padding)}});
  const double root = std::sqrt(static_cast<double>(hidden.extent));
  return scaled(s, x, embedding_scale * (family.scaled_embedding ? root : 1));
}

Id ResidualStream::input_of(const SegmentPart& s, Id x, const char* norm_name) const {
  return normed(NormPlace::before) ? norm(s, x, norm_name) : x;
}

Id ResidualStream::added(const SegmentPart& s, Id x, const char* norm_name, Id output) const {
  const Id added = normed(NormPlace::after) ? norm(s, output, norm_name) : output;
  return s.op("add", {x, scaled(s, added, residual_scale)});
}

Id ResidualStream::norm(const SegmentPart& s, Id x, const std::string& name) const {
  return norm(s, x, s.vector(name + ".gain", {hidden}, gains()), 1);
}

Id ResidualStream::norm(const SegmentPart& s, Id x, Id gain, int dims) const {
  return s.op(
      "rmsnorm", {x, gain},
      {{"eps", eps}, {"offset", family.gain_from_one ? 1.0 : 0.0}, {"dims", static_cast<double>(dims)}});
}

void ResidualStream::write_scales(ConfigWriter& config) const {
  if (family.multipliers) {
    config.set("embedding_multiplier", embedding_scale);
    config.set("residual_multiplier", residual_scale);
    return;
  }
  if (embedding_scale != 1) throw_no_key(family, "embedding_scale", "what embeddings are multiplied by");
  if (residual_scale != 1) throw_no_key(family, "residual_scale", "what residuals are multiplied by");
}

void ResidualStream::add_norms(const LayerWeights& weights) const {
  const bool before = normed(NormPlace::before), after = normed(NormPlace::after);
  if (before) weights.add("norm1.gain", "input_layernorm.weight");
  const auto add = [&](const char* gain, std::string_view name) {
    weights.add(gain, std::string(name) + ".weight");
  };
  if (before) add("norm2.gain", after ? family.norm_names.before_mlp : family.norm_names.before_mlp_alone);
  if (after) add("norm1_after.gain", family.norm_names.behind_attention);
  if (after) add("norm2_after.gain", family.norm_names.behind_mlp);
}

namespace {

// ------------------------------------------------------------------- grouped attention

// Returns what scores are multiplied by where they are divided by this number's root, to the 15 digits that a
// file's number has: then what was read of a file is written as it was.
double multiplier_of(double scalar) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.15g", 1 / std::sqrt(scalar));
  return std::strtod(digits, nullptr);
}

}  // namespace

GroupedAttention::GroupedAttention(const Options& options)
    : heads(options.integer("heads")),
      groups{"heads", options.integer("kv_heads") ? options.integer("kv_heads") : heads},
      head_dim{"head_dim",
               options.integer("head_dim") ? options.integer("head_dim") : options.integer("hidden") / heads},
      query_scalar(options.number("query_scalar")),
      softcap(options.number("score_softcap")),
      dropout{options.number("attention_dropout")} {}

void GroupedAttention::check(const Options& options) const {
  const std::int64_t hidden = options.integer("hidden");
  if (options.integer("head_dim") == 0 && hidden % heads != 0)
    throw_error(ErrorCode::bad_input, "model.hidden = ", hidden,
                " is not a multiple of model.heads = ", heads, "; set model.head_dim");
  if (heads % groups.extent != 0)
    throw_error(ErrorCode::bad_input, "model.heads = ", heads,
                " is not a multiple of model.kv_heads = ", groups.extent);
  if (head_dim.extent % 2 != 0)
    throw_error(ErrorCode::bad_input, "model.head_dim = ", head_dim.extent,
                " is odd; rotary positions turn pairs");
}

// The projection is packed by key-value head: each has its queries, perhaps with gates, its key, its value.
Id GroupedAttention::build(const SegmentPart& s, const ResidualStream& stream,
                           const std::optional<Rope>& rope, Id x, double window) const {
  const std::int64_t slots = query_slots(stream.family);
  const Dim packed{"packed", slots + 2};
  const Id weight = s.matrix(s.weight("qkv.weight", {groups, packed, head_dim, stream.hidden}),
                             {.batch = 1, .columns = 1, .cuts = {slots, slots + 1}});
  const Id bias = stream.family.biases.qkv ? s.vector("qkv.bias", {groups, packed, head_dim}, zeros()) : none;
  Id gates = none;
  const Id projected = normed_heads(s, stream, s.op("linear", {x, weight, bias}), gates);
  std::vector<Id> of = turned_heads(s, rope, projected);
  if (stream.family.head_norm == HeadNorm::turned) norm_apart(s, stream, of);
  const Id sinks = stream.family.sinks ? s.vector("sinks", {groups, queries()}, zeros()) : none;
  const Id seen = dropout.of(s, of, {{"window", window}, {"softcap", softcap}}, sinks);
  return s.op(
      "linear",
      {gates == none ? seen : s.op("output_gate", {seen, gates}),
       s.matrix(s.weight("proj.weight", {stream.hidden, groups, queries(), head_dim}), {.columns = 3}),
       stream.family.biases.out ? s.vector("proj.bias", {stream.hidden}, zeros()) : none},
      {{"in_dims", 3}});
}

// Queries carry what their scores are multiplied by.
std::vector<Id> GroupedAttention::turned_heads(const SegmentPart& s, const std::optional<Rope>& rope,
                                               Id packed) const {
  const double scalar =
      query_scalar == 0 ? 1 : std::sqrt(static_cast<double>(head_dim.extent) / query_scalar);
  if (rope) return s.insert_forward(none, "rope", {packed}, 3, rope->head_attrs(scalar));
  std::vector<Id> apart = s.ops("split_heads", {packed}, 3);
  if (scalar != 1) apart[0] = s.op("scale", {apart[0]}, {{"factor", scalar}});
  return apart;
}

// Queries and keys are normed head by head, or all heads of a position together. Queries leave their gates.
Id GroupedAttention::normed_heads(const SegmentPart& s, const ResidualStream& stream, Id packed,
                                  Id& gates) const {
  const HeadNorm norm = stream.family.head_norm;
  const bool normed = norm == HeadNorm::each || norm == HeadNorm::all;
  if (!normed && !stream.family.gated_attention) return packed;
  std::vector<Id> apart = s.ops("split_heads", {packed}, 3);
  if (stream.family.gated_attention) {
    const std::vector<Id> of_queries = s.ops("split_gate", {apart[0]}, 2);
    apart[0] = of_queries[0];
    gates = of_queries[1];
  }
  if (normed) norm_apart(s, stream, apart);
  return s.op("join_heads", {apart[0], apart[1], apart[2]});
}

void GroupedAttention::norm_apart(const SegmentPart& s, const ResidualStream& stream,
                                  std::vector<Id>& apart) const {
  const bool all = stream.family.head_norm == HeadNorm::all;
  // A norm of a whole row is not split with the heads.
  const Dim norm_groups{"norm_heads", groups.extent}, slots{"norm_queries", queries().extent};
  const Id of_queries = all ? s.vector("q_norm.gain", {norm_groups, slots, head_dim}, stream.gains())
                            : s.vector("q_norm.gain", {head_dim}, stream.gains());
  const Id of_keys = all ? s.vector("k_norm.gain", {norm_groups, head_dim}, stream.gains())
                         : s.vector("k_norm.gain", {head_dim}, stream.gains());
  apart[0] = stream.norm(s, apart[0], of_queries, all ? 3 : 1);
  apart[1] = stream.norm(s, apart[1], of_keys, all ? 2 : 1);
}

// ------------------------------------------------------------------- files

void GroupedAttention::write_query_scalar(const Family& family, ConfigWriter& config) const {
  const auto usual = static_cast<double>(head_dim.extent);
  const double scalar = query_scalar == 0 ? usual : query_scalar;
  if (family.multipliers) return config.set("attention_multiplier", multiplier_of(scalar));
  if (!family.scalar_said && scalar != usual)
    throw_no_key(family, "query_scalar", "what scores are divided by");
  if (!family.scalar_said) return;
  if (scalar != std::floor(scalar)) throw_no_key(family, "query_scalar");  // the key is a whole number
  config.set("query_pre_attn_scalar", static_cast<std::int64_t>(scalar));
}

// Queries, keys and values of a group are together here and, in most families, in three tensors there.
void GroupedAttention::add_weights(const Family& family, const LayerWeights& weights) const {
  const auto add_packed = [&](const std::string& name, std::int64_t begin, std::int64_t end) {
    weights.add("qkv.weight", name + ".weight", "heads packed head_dim, hidden", "packed", begin, end);
    if (family.biases.qkv)
      weights.add("qkv.bias", name + ".bias", "heads packed head_dim", "packed", begin, end);
  };
  const std::int64_t of_group = query_slots(family);
  const bool fused = family.fused_qkv;
  add_packed(fused ? "self_attn.qkv_proj" : "self_attn.q_proj", 0, of_group);
  add_packed(fused ? "self_attn.qkv_proj" : "self_attn.k_proj", of_group, of_group + 1);
  add_packed(fused ? "self_attn.qkv_proj" : "self_attn.v_proj", of_group + 1, of_group + 2);
  weights.add("proj.weight", "self_attn.o_proj.weight", "hidden, heads queries head_dim");
  if (family.sinks) weights.add("sinks", "self_attn.sinks", "heads queries");
  if (family.biases.out) weights.add("proj.bias", "self_attn.o_proj.bias");
}

void GroupedAttention::add_head_norms(const Family& family, const LayerWeights& weights) const {
  if (family.head_norm == HeadNorm::absent) return;
  const bool all = family.head_norm == HeadNorm::all, turned = family.head_norm == HeadNorm::turned;
  const std::string of_queries = turned ? "self_attn.query_layernorm.weight" : "self_attn.q_norm.weight",
                    of_keys = turned ? "self_attn.key_layernorm.weight" : "self_attn.k_norm.weight";
  weights.add("q_norm.gain", of_queries, all ? "norm_heads norm_queries head_dim" : "");
  weights.add("k_norm.gain", of_keys, all ? "norm_heads head_dim" : "");
}

}  // namespace prun
