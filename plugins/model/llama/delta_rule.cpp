#include "delta_rule.hpp"

#include <numeric>

#include "config_keys.hpp"

namespace prun {
namespace {

constexpr const char* recurrent_type = "linear_attention";
constexpr const char* attending_type = "full_attention";

}  // namespace

DeltaRuleLayers::DeltaRuleLayers(std::int64_t groups_of_attention, const Options& options)
    : layers(options.integer("layers")),
      attending(LayersInTurn::of(options.integer("attends_every"), options.numbers("attends_layers"))),
      key_heads(options.integer("delta_key_heads")),
      value_heads(options.integer("delta_value_heads")),
      key_dim{"key_dim", options.integer("delta_key_dim")},
      value_dim{"value_dim", options.integer("delta_value_dim")},
      taps{"taps", options.integer("delta_taps")},
      groups{"heads", std::gcd(groups_of_attention, key_heads)} {}

void DeltaRuleLayers::check() const {
  if (any() && value_heads % key_heads != 0)
    throw_error(ErrorCode::bad_input, "model.delta_value_heads = ", value_heads,
                " is not a multiple of model.delta_key_heads = ", key_heads, "; choose one");
}

// One projection has of each key head its query, its key, its values and their gates; another one what shares
// and decays are made of. Decays start from rates that differ from head to head. Ranks have all of the
// convolution's weight, whatever they split: it may be in parts of heads while parameters are whole.
Id DeltaRuleLayers::build(const SegmentPart& s, const ResidualStream& stream, Id x) const {
  const auto n = static_cast<double>(of_head());
  const Dim wide{"channels", channels()}, one{"one", 1}, both{"both", 2 * of_head()};
  const std::int64_t key = key_dim.extent;
  const Id mix = s.matrix(s.weight("mix.weight", {groups, keys(), mixed(), stream.hidden}),
                          {.batch = 2, .columns = 1, .cuts = {key, 2 * key, channels()}});
  const std::vector<Id> apart =
      s.insert_forward(none, "split_mixed", {s.op("linear", {x, mix, none})}, 2,
                       {{"channels", static_cast<double>(wide.extent)}, {"values", n}});
  const Id convolved = s.ops("short_conv",
                             {apart[0], s.weight("conv.weight", {{"conv_heads", groups.extent},
                                                                 {"conv_keys", keys().extent},
                                                                 {"conv_channels", wide.extent},
                                                                 one,
                                                                 taps})},
                             2)[0];
  const std::vector<Id> heads =
      s.ops("delta_heads", {convolved}, 3, {{"key_dim", static_cast<double>(key)}, {"values", n}});
  const Id numbers =
      s.op("linear", {x, s.weight("gates.weight", {groups, keys(), both, stream.hidden}), none});
  const std::vector<Id> gates = s.ops("delta_gates",
                                      {numbers, s.vector("rate", {groups, values()}, normal(1)),
                                       s.vector("bias", {groups, values()}, ones())},
                                      2);
  const Id read = s.ops("delta_rule", {heads[0], heads[1], heads[2], gates[0], gates[1]}, 2)[0];
  const Id normed =
      s.op("rmsnorm", {read, s.vector("norm.gain", {value_dim}, ones())}, {{"eps", stream.eps}});
  const Id proj =
      s.matrix(s.weight("proj.weight", {stream.hidden, groups, values(), value_dim}), {.columns = 3});
  return s.op("linear", {s.op("output_gate", {normed, apart[1]}, {{"silu", 1}}), proj, none},
              {{"in_dims", 3}});
}

// ------------------------------------------------------------------- files

void DeltaRuleLayers::read_config(const Options& config, const Family& family, ConfigWriter& options) {
  if (family.delta == DeltaKeys::absent) return;
  const std::int64_t layers = config.integer("num_hidden_layers"),
                     every = integer_or(config, "full_attention_interval", 4);
  if (every < 1)
    throw_error(ErrorCode::bad_input, "'full_attention_interval' is ", every,
                ", and it counts layers from 1 on");
  std::vector<std::string> types;
  if (config.has("layer_types")) types = config.texts("layer_types");
  if (config.has("layer_types") && static_cast<std::int64_t>(types.size()) != layers)
    throw_error(ErrorCode::bad_input, "'layer_types' lists ", types.size(), " layers of ", layers);
  LayersInTurn attending = LayersInTurn::rule_of(layers, [&](std::int64_t i) {
    return types.empty() ? (i + 1) % every == 0 : types[static_cast<std::size_t>(i)] == attending_type;
  });
  if (!attending.any()) attending.every = layers + 1;  // none of them attends
  if (attending.every != 0) options.set("attends_every", attending.every);
  if (!attending.listed.empty()) options.set("attends_layers", attending.listed);
  options.set("delta_key_heads", integer_or(config, "linear_num_key_heads", 16));
  options.set("delta_value_heads", integer_or(config, "linear_num_value_heads", 32));
  options.set("delta_key_dim", integer_or(config, "linear_key_head_dim", 128));
  options.set("delta_value_dim", integer_or(config, "linear_value_head_dim", 128));
  options.set("delta_taps", integer_or(config, "linear_conv_kernel_dim", 4));
}

void DeltaRuleLayers::write_config(const Family& family, ConfigWriter& config) const {
  if (family.delta == DeltaKeys::absent) {
    if (any())
      throw_no_key(family, attending.every != 0 ? "attends_every" : "attends_layers",
                   "layers with the gated delta rule");
    return;
  }
  std::vector<std::string> types;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    types.emplace_back(has(layer) ? recurrent_type : attending_type);
  config.set("layer_types", types);
  config.set("linear_num_key_heads", key_heads);
  config.set("linear_num_value_heads", value_heads);
  config.set("linear_key_head_dim", key_dim.extent);
  config.set("linear_value_head_dim", value_dim.extent);
  config.set("linear_conv_kernel_dim", taps.extent);
}

// The convolution's channels lie there as all queries, all keys and all values; projections of one family do
// as well.
void DeltaRuleLayers::add_weights(const Family& family, const LayerWeights& weights) const {
  const std::int64_t key = key_dim.extent, n = of_head();
  const char *const mix = "heads queries mixed, hidden", *const gates = "heads queries both, hidden";
  const bool apart = family.delta == DeltaKeys::apart;
  for (const auto& [begin, end] : {std::pair(std::int64_t{0}, key), {key, 2 * key}, {2 * key, channels()}}) {
    weights.add("conv.weight", "linear_attn.conv1d.weight", "conv_heads conv_keys conv_channels, one, taps",
                "conv_channels", begin, end);
    if (apart) weights.add("mix.weight", "linear_attn.in_proj_qkv.weight", mix, "mixed", begin, end);
  }
  if (apart) {
    weights.add("mix.weight", "linear_attn.in_proj_z.weight", mix, "mixed", channels(), mixed().extent);
    weights.add("gates.weight", "linear_attn.in_proj_b.weight", gates, "both", 0, n);
    weights.add("gates.weight", "linear_attn.in_proj_a.weight", gates, "both", n, 2 * n);
  } else {
    weights.add("mix.weight", "linear_attn.in_proj_qkvz.weight", mix);
    weights.add("gates.weight", "linear_attn.in_proj_ba.weight", gates);
  }
  weights.add("rate", "linear_attn.A_log", "heads queries");
  weights.add("bias", "linear_attn.dt_bias", "heads queries");
  weights.add("norm.gain", "linear_attn.norm.weight");
  weights.add("proj.weight", "linear_attn.out_proj.weight", "hidden, heads queries value_dim");
}

}  // namespace prun
