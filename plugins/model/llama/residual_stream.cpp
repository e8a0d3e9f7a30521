#include "residual_stream.hpp"

#include <cmath>

namespace prun {

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

}  // namespace prun
