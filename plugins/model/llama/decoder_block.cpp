#include "decoder_block.hpp"

namespace prun {

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

}  // namespace prun
